#pragma once

#include <string>
#include <vector>

#include "simulator/model_graph.h"

namespace pw {

/// Operator name without `torch.ops.aten.` and overload: `linear`, `relu_`; the whole target for others.
[[nodiscard]] std::string operatorName(const Node& node);

/// Whether the operator draws random numbers as it is called here (dropout with probability 0 does not).
[[nodiscard]] bool isRandomOperator(const Node& node);
/// `relu_`, `__iadd__`: writes into its first argument.
[[nodiscard]] bool isInPlace(const Node& node);
/// Whether the node's output shares memory with its first input.
[[nodiscard]] bool isView(const Node& node);

/// The value whose memory this one shows, following views back to what was computed.
[[nodiscard]] ValueId viewedBase(const ModelGraph& graph, ValueId value);

/// For each value: whether its memory is changed by an operator in place, directly or through a view, or as a running statistic.
[[nodiscard]] std::vector<bool> changedInPlace(const ModelGraph& graph);

/// For each node: whether it could be computed anywhere, because it depends on model inputs, buffers and constants only, draws no random
/// numbers, changes nothing and needs no gradient. One entry per node. Cost: linear.
[[nodiscard]] std::vector<bool> recomputableNodes(const ModelGraph& graph);

/// Index into parameters, buffers or constants of each value, or −1. One entry per value.
[[nodiscard]] std::vector<int> indexByValue(const ModelGraph& graph, const std::vector<StateTensor>& tensors);

}  // namespace pw
