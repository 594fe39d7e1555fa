#include "simulator/costs/attention.h"

#include <algorithm>

#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

/// Whether a fused kernel applies it to the scores as they come: scales, masks, casts, dropouts, views.
bool isOnTheWay(const Node& node) {
  const Operator& op = operatorOf(node.target);
  return isView(node) || op.result == Result::View || op.result == Result::Copy || op.dimensions == DimensionRule::Each;
}

/// The graph's values by who reads them.
class Chains {
 public:
  explicit Chains(const ModelGraph& graph) : graph_(graph), reader_(graph.values.size()), readers_(graph.values.size(), 0) {
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : readsOf(graph.nodes[n])) {
        reader_[v.index()] = NodeId(n);
        ++readers_[v.index()];
      }
    }
    for (const ValueId v : graph.outputs) readers_[v.index()] += 2;
  }

  /// From a product to the softmax's input, or nothing.
  [[nodiscard]] std::vector<ValueId> before(const Node& softmax) const {
    std::vector<ValueId> chain;
    std::optional<ValueId> at = mainInput(softmax);
    while (at && readers_[at->index()] == 1 && graph_.value(*at).origin == ValueOrigin::Node) {
      chain.push_back(*at);
      const Node& producer = graph_.node(graph_.value(*at).producer);
      if (isProductOfComputed(producer)) return chain;
      if (!isOnTheWay(producer)) break;
      at = mainInput(producer);
    }
    return {};
  }

  /// From the softmax's result to the input of a product, or nothing.
  [[nodiscard]] std::vector<ValueId> after(const Node& softmax) const {
    std::vector<ValueId> chain;
    const Node* node = &softmax;
    while (!node->outputs.empty() && readers_[node->outputs.front().index()] == 1) {
      chain.push_back(node->outputs.front());
      node = &graph_.node(reader_[chain.back().index()]);
      if (isProductOfComputed(*node)) return chain;
      if (!isOnTheWay(*node) || mainInput(*node) != chain.back()) break;
    }
    return {};
  }

 private:
  /// The tensor that the scores come in: the first computed one of the most dimensions.
  [[nodiscard]] std::optional<ValueId> mainInput(const Node& node) const {
    std::optional<ValueId> main;
    for (const ValueId v : readsOf(node)) {
      const Value& value = graph_.value(v);
      if (!value.tensor || value.origin != ValueOrigin::Node) continue;
      if (!main || value.tensor->sizes.size() > graph_.value(*main).tensor->sizes.size()) main = v;
    }
    return main;
  }

  [[nodiscard]] bool isProductOfComputed(const Node& node) const {
    if (operatorOf(node.target).work != Work::Product) return false;
    const auto reads = readsOf(node);
    return std::ranges::all_of(reads, [&](ValueId v) { return graph_.value(viewedBase(graph_, v)).origin != ValueOrigin::Parameter; });
  }

  const ModelGraph& graph_;
  std::vector<NodeId> reader_;  ///< the last
  std::vector<int> readers_;
};

}  // namespace

std::vector<bool> fusedAttentionValues(const ModelGraph& graph) {
  std::vector<bool> fused(graph.values.size(), false);
  const Chains chains(graph);
  for (const Node& node : graph.nodes) {
    if (!operatorOf(node.target).softmax) continue;
    const std::vector<ValueId> before = chains.before(node), after = chains.after(node);
    if (before.empty() || after.empty()) continue;
    for (const ValueId v : before) fused[v.index()] = true;
    for (const ValueId v : after) fused[v.index()] = true;
  }
  return fused;
}

std::optional<double> attentionScores(const ModelGraph& graph, const Node& node, const Bindings& bindings) {
  if (operatorOf(node.target).work != Work::Attention) return 0;
  std::vector<const TensorMeta*> tensors;  // query, key, …
  for (const ValueId v : readsOf(node)) {
    if (graph.value(v).tensor) tensors.push_back(&*graph.value(v).tensor);
  }
  if (tensors.size() < 2 || tensors[0]->sizes.size() < 2 || tensors[1]->sizes.size() < 2) return 0;
  std::vector<const SymbolicInt*> sizes{&tensors[1]->sizes[tensors[1]->sizes.size() - 2]};
  for (std::size_t d = 0; d + 1 < tensors[0]->sizes.size(); ++d) sizes.push_back(&tensors[0]->sizes[d]);
  double scores = 1;
  for (const SymbolicInt* size : sizes) {
    const std::optional<std::int64_t> known = knownNumber(*size, bindings);
    if (!known) return std::nullopt;
    scores *= static_cast<double>(*known);
  }
  return scores;
}

}  // namespace pw
