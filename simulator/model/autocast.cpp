#include "simulator/model/autocast.h"

#include "simulator/model/graph_facts.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

/// Of nodes that count FLOPs: those that autocast runs in 16 bits; regions compute as what is inside.
bool isProduct(const Node& node) {
  const Operator& op = operatorOf(node.target);
  return op.name.empty() ? node.target.find("wrap_with_autocast") == std::string::npos : op.autocast == Autocast::Lower;
}

bool isFloat(const ModelGraph& graph, ValueId v) {
  const Value& value = graph.value(v);
  return value.tensor && !value.symbolic && value.tensor->dtype == DType::Float32;
}

}  // namespace

AutocastTypes autocastTypes(const ModelGraph& graph, DType precision, const std::vector<double>& flops) {
  AutocastTypes types{std::vector<bool>(graph.nodes.size(), false), std::vector<bool>(graph.values.size(), false)};
  if (precision == DType::Unknown) return types;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    types.casts[n] = flops[n] > 0 && isProduct(node) && !node.outputs.empty() && isFloat(graph, node.outputs.front());
    bool anyFloat = false, allLower = true;
    const auto reads = readsOf(node);
    const bool isBatchNorm = operatorOf(node.target).dimensions == DimensionRule::BatchNorm;
    for (const ValueId v : reads) {
      if (!isFloat(graph, v) || graph.value(v).tensor->sizes.empty()) continue;  // a number does not widen a tensor
      if (isBatchNorm && v != *reads.begin()) continue;                          // nor do its float32 weights and statistics
      anyFloat = true;
      allLower = allLower && types.isLower[v.index()];
    }
    const bool lower = types.casts[n] || (anyFloat && allLower && operatorOf(node.target).autocast != Autocast::Float32);
    for (const ValueId v : node.outputs) types.isLower[v.index()] = lower && isFloat(graph, v);
  }
  return types;
}

}  // namespace pw
