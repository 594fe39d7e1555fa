#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// The operator of a layer table's layers; the graph does not say what they compute (simulator/costs/layer_chain.h).
inline constexpr const char* kLayerTarget = "layer";
/// Whether the model is a layer table: it can be planned, not run.
[[nodiscard]] inline bool isLayerChain(const ModelGraph& graph) {
  return !graph.nodes.empty() && graph.nodes.front().target == kLayerTarget;
}

/// Operator name without `torch.ops.aten.` and overload: `linear`, `relu_`; the whole target for others.
[[nodiscard]] std::string operatorName(const Node& node);

/// Whether the operator itself draws random numbers as it is called here: dropout with probability 0 or outside training does not.
[[nodiscard]] bool isRandomOperator(const Node& node);
/// Whether the operator writes into its first argument: `relu_`, `__iadd__`.
[[nodiscard]] bool isInPlace(const Node& node);
/// Whether the node's outputs share, or may share, memory with its first input (`reshape`, `contiguous`, `to`).
[[nodiscard]] bool isView(const Node& node);
/// Whether the node's output holds the numbers of its first input in other memory or another type (`clone`, `_to_copy`).
[[nodiscard]] bool isCopy(const Node& node);
/// Whether a batch or instance norm takes statistics of its input and moves its running ones; without a flag it is taken for training.
[[nodiscard]] bool movesStatistics(const Node& node);

/// Whether the host waits for what the operator computes: a number, a size, whether it succeeded, or where a mask is set.
[[nodiscard]] bool waitsForDevice(const ModelGraph& graph, const Node& node);

/// Whether the node only checks what was true at export (`_assert_scalar`, `sym_constrain_range`): it is not run, and needs nothing.
[[nodiscard]] bool isAssertion(const Node& node);

/// Targets of operators that LibTorch 2.11 does not define by itself, each once, in the graph's order, sub-graphs included: by their
/// namespace, so a misspelt one of `aten` is not among them. A library that defines them has to be loaded before they run.
[[nodiscard]] std::vector<std::string> customOperators(const ModelGraph& graph);

/// For each value: whether it is a number that nodes compute from data while they run (`item`, the length of `nonzero`, arithmetic with
/// these), because the sizes of the inputs do not give it.
[[nodiscard]] std::vector<bool> computedNumbers(const ModelGraph& graph);

/// The value whose memory this one shows: follows views and in-place operators back to a computed or given value.
[[nodiscard]] ValueId viewedBase(const ModelGraph& graph, ValueId value);
/// `viewedBase` of every value. Cost: linear.
[[nodiscard]] std::vector<ValueId> viewedBases(const ModelGraph& graph);

/// For each value: whether its memory is changed by an operator in place, directly or through a view, or as a running statistic of batch
/// norm in training. A node with an in-place operator in its sub-graph counts as changing everything it reads.
[[nodiscard]] std::vector<bool> changedInPlace(const ModelGraph& graph);
/// The same by nodes [begin, end) alone.
[[nodiscard]] std::vector<bool> changedInPlace(const ModelGraph& graph, NodeId begin, NodeId end);

/// Nodes that must share a stage: no stage may begin in (first, last], because `changer` changes memory in place that nodes on both sides
/// use. Split there, each stage would hold its own copy and some would miss the change.
struct KeptTogether {
  NodeId first;
  NodeId last;
  NodeId changer;
  ValueId value;  ///< the value whose memory is changed: a computed value, buffer, parameter or input

  bool operator==(const KeptTogether&) const = default;
};

/// All such groups, in the order of their changers: from where a value is computed to an operator that changes it, when it or a view of it
/// made before is read later; and all readers of a buffer, parameter or input that is changed. Sub-graphs are not searched. Cost: linear
/// times the number of in-place operators.
[[nodiscard]] std::vector<KeptTogether> keptTogether(const ModelGraph& graph);

/// Whether a value's gradient is needed: floating point, and computed from a trained parameter by differentiable nodes; written in place,
/// also what it is a view of. One entry per value. Cost: linear.
[[nodiscard]] std::vector<bool> needsGradient(const ModelGraph& graph);

/// Trained parameters to which this output, as the loss or what it is made of, gives no gradient: one name of each, in the model's order.
/// Cost: linear.
[[nodiscard]] std::vector<std::string> unreachedParameters(const ModelGraph& graph, ValueId output);

/// For each node: whether it could be computed anywhere, because it depends on model inputs, buffers and constants only, draws no random
/// numbers, changes nothing and needs no gradient. One entry per node. Cost: linear.
[[nodiscard]] std::vector<bool> recomputableNodes(const ModelGraph& graph);

/// Index into parameters, buffers or constants of each value, or −1. One entry per value.
[[nodiscard]] std::vector<int> indexByValue(const ModelGraph& graph, const std::vector<StateTensor>& tensors);

}  // namespace pw
