#include "simulator/graph_facts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "simulator/partition.h"

namespace pw {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool startsWithAny(std::string_view name, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return name.substr(0, p.size()) == p; });
}

/// A node under no_grad: `wrap_with_set_grad_enabled(False, …)`.
bool runsWithoutGradient(const Node& node) {
  if (node.target != "torch.ops.higher_order.wrap_with_set_grad_enabled" || node.inputs.empty()) return false;
  const auto* enabled = std::get_if<bool>(&node.inputs.front().value);
  return enabled != nullptr && !*enabled;
}

}  // namespace

std::string operatorName(const Node& node) {
  if (node.target.rfind(kAten, 0) != 0) return node.target;
  const std::string rest = node.target.substr(kAten.size());
  return rest.substr(0, rest.find('.'));
}

bool isRandomOperator(const Node& node) {
  const std::string name = operatorName(node);
  if (startsWithAny(name, {"dropout", "native_dropout", "feature_dropout", "alpha_dropout", "bernoulli", "rand", "normal", "multinomial",
                           "uniform", "exponential", "poisson", "rrelu", "geometric", "log_normal", "cauchy"})) {
    return true;
  }
  return std::any_of(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& a) {
    const auto* p = std::get_if<double>(&a.value);
    return (a.name == "dropout_p" || a.name == "dropout") && p != nullptr && *p > 0;
  });
}

bool isInPlace(const Node& node) {
  const std::string name = operatorName(node);
  if (name.size() < 2 || node.target.rfind(kAten, 0) != 0) return false;
  return name.rfind("__i", 0) == 0 || (name.back() == '_' && name[name.size() - 2] != '_');
}

bool isView(const Node& node) {
  constexpr std::array<std::string_view, 30> kViews = {
      "view",   "reshape", "transpose", "permute", "slice",  "select", "unsqueeze", "squeeze", "expand",   "expand_as",
      "t",      "alias",   "detach",    "narrow",  "split",  "chunk",  "unbind",    "flatten", "unflatten", "as_strided",
      "view_as", "diagonal", "movedim", "numpy_T", "contiguous", "to",  "split_with_sizes", "swapaxes", "mT", "unfold"};
  return contains(kViews, operatorName(node));
}

std::vector<bool> needsGradient(const ModelGraph& graph) {
  std::vector<bool> needs(graph.values.size(), false);
  for (const StateTensor& parameter : graph.parameters) {
    const auto& meta = graph.value(parameter.value).tensor;
    needs[parameter.value.index()] = meta && meta->requiresGrad && isDifferentiable(meta->dtype);
  }
  for (const Node& node : graph.nodes) {
    if (operatorName(node) == "detach" || runsWithoutGradient(node)) continue;
    const auto reads = readsOf(node);
    if (std::none_of(reads.begin(), reads.end(), [&](ValueId v) { return needs[v.index()]; })) continue;
    for (const ValueId output : node.outputs) {
      const auto& meta = graph.value(output).tensor;
      needs[output.index()] = meta && isDifferentiable(meta->dtype);
    }
  }
  return needs;
}

ValueId viewedBase(const ModelGraph& graph, ValueId value) {
  while (graph.value(value).origin == ValueOrigin::Node && isView(graph.node(graph.value(value).producer))) {
    const auto reads = readsOf(graph.node(graph.value(value).producer));
    if (reads.empty() || reads.front() == value) break;
    value = reads.front();
  }
  return value;
}

std::vector<bool> changedInPlace(const ModelGraph& graph) {
  std::vector<bool> changedBase(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    const auto reads = readsOf(node);
    if (reads.empty()) continue;
    if (isInPlace(node)) changedBase[viewedBase(graph, reads.front()).index()] = true;
    if (operatorName(node).find("batch_norm") == std::string::npos) continue;
    for (const ValueId v : reads) changedBase[v.index()] = changedBase[v.index()] || graph.value(v).origin == ValueOrigin::Buffer;
  }
  std::vector<bool> changed(graph.values.size(), false);
  for (std::size_t v = 0; v < graph.values.size(); ++v) changed[v] = changedBase[viewedBase(graph, ValueId(v)).index()];
  return changed;
}

std::vector<bool> recomputableNodes(const ModelGraph& graph) {
  const std::vector<bool> gradient = needsGradient(graph);
  std::vector<bool> anywhere(graph.values.size(), false);  // values available on every rank
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const Value& value = graph.values[v];
    anywhere[v] = value.symbolic || value.origin == ValueOrigin::Input || value.origin == ValueOrigin::Constant || value.origin == ValueOrigin::Buffer;
  }
  const std::vector<bool> changed = changedInPlace(graph);
  std::vector<bool> recomputable(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (isRandomOperator(node) || isInPlace(node) || node.outputs.empty()) continue;
    const auto reads = readsOf(node);
    const bool fromAnywhere = std::all_of(reads.begin(), reads.end(), [&](ValueId v) { return anywhere[v.index()] && !changed[v.index()]; });
    const bool plain = std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return gradient[v.index()] || changed[v.index()]; });
    if (!fromAnywhere || !plain) continue;
    recomputable[n] = true;
    for (const ValueId output : node.outputs) anywhere[output.index()] = true;
  }
  return recomputable;
}

std::vector<int> indexByValue(const ModelGraph& graph, const std::vector<StateTensor>& tensors) {
  std::vector<int> index(graph.values.size(), -1);
  for (std::size_t i = 0; i < tensors.size(); ++i) index[tensors[i].value.index()] = static_cast<int>(i);
  return index;
}

}  // namespace pw
