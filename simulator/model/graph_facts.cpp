#include "simulator/model/graph_facts.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

template <std::size_t N>
bool contains(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

/// A node under no_grad: `wrap_with_set_grad_enabled(False, …)`.
bool runsWithoutGradient(const Node& node) {
  if (node.target != "torch.ops.higher_order.wrap_with_set_grad_enabled" || node.inputs.empty()) return false;
  const auto* enabled = std::get_if<bool>(&node.inputs.front().value);
  return enabled != nullptr && !*enabled;
}

template <class Predicate>
bool anyInside(const ModelGraph& graph, const Node& node, const Predicate& predicate) {
  return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NamedArgument& argument) {
    const auto* inner = std::get_if<GraphArg>(&argument.value);
    if (inner == nullptr) return false;
    const auto& nodes = graph.subgraphs[inner->index].nodes;
    return std::any_of(nodes.begin(), nodes.end(), [&](const Node& n) { return predicate(n) || anyInside(graph, n, predicate); });
  });
}

/// Whether a batch norm moves its running statistics; without a flag it is taken for training.
bool updatesStatistics(const Node& node) {
  const std::string name = operatorName(node);
  if (name.find("batch_norm") == std::string::npos || name.find("no_training") != std::string::npos) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& a) {
    const auto* training = std::get_if<bool>(&a.value);
    return (a.name == "training" || a.name == "train") && training != nullptr && !*training;
  });
}

bool changesMemory(const Node& node) { return isInPlace(node) || updatesStatistics(node); }

/// Values whose memory the node itself changes.
std::vector<ValueId> changedBy(const ModelGraph& graph, const Node& node) {
  std::vector<ValueId> reads = readsOf(node);
  if (isInPlace(node)) {
    reads.resize(std::min<std::size_t>(1, reads.size()));
  } else if (updatesStatistics(node)) {
    reads.erase(std::remove_if(reads.begin(), reads.end(), [&](ValueId v) { return graph.value(v).origin != ValueOrigin::Buffer; }),
                reads.end());
  } else {
    reads.clear();
  }
  return reads;
}

}  // namespace

std::string operatorName(const Node& node) {
  if (node.target.rfind(kAten, 0) != 0) return node.target;
  const std::string rest = node.target.substr(kAten.size());
  return rest.substr(0, rest.find('.'));
}

bool isRandomOperator(const Node& node) {
  constexpr std::array<std::string_view, 24> kRandom = {"bernoulli",
                                                        "multinomial",
                                                        "normal",
                                                        "normal_functional",
                                                        "uniform",
                                                        "exponential",
                                                        "poisson",
                                                        "geometric",
                                                        "log_normal",
                                                        "cauchy",
                                                        "rrelu",
                                                        "rrelu_with_noise",
                                                        "dropout",
                                                        "native_dropout",
                                                        "feature_dropout",
                                                        "alpha_dropout",
                                                        "feature_alpha_dropout",
                                                        "_fused_dropout",
                                                        "rand",
                                                        "rand_like",
                                                        "randn",
                                                        "randn_like",
                                                        "randperm",
                                                        "random"};
  bool off = false;  // not in training, or with probability 0
  bool attention = false;
  for (const NamedArgument& a : node.inputs) {
    const auto* number = std::get_if<double>(&a.value);
    const auto* flag = std::get_if<bool>(&a.value);
    if (a.name == "p" && number != nullptr && *number == 0) off = true;
    if ((a.name == "train" || a.name == "training") && flag != nullptr && !*flag) off = true;
    if ((a.name == "dropout_p" || a.name == "dropout") && number != nullptr && *number > 0) attention = true;
  }
  std::string name = operatorName(node);
  if (isInPlace(node) && name.back() == '_') name.pop_back();
  if (name.rfind("randint", 0) == 0) return true;
  const bool canBeOff = name.find("dropout") != std::string::npos || name.rfind("rrelu", 0) == 0;
  return contains(kRandom, name) ? !(canBeOff && off) : attention && !off;
}

bool isInPlace(const Node& node) {
  const std::string name = operatorName(node);
  if (name.size() < 2 || node.target.rfind(kAten, 0) != 0) return false;
  return name.rfind("__i", 0) == 0 || (name.back() == '_' && name[name.size() - 2] != '_');
}

bool isAssertion(const Node& node) {
  return node.target.rfind("torch.ops.aten._assert", 0) == 0 || node.target.rfind("torch.ops.aten.sym_constrain", 0) == 0;
}

std::vector<std::string> customOperators(const ModelGraph& graph) {
  constexpr std::string_view kPrefix = "torch.ops.";
  constexpr std::array<std::string_view, 16> kOwn{"aten",   "prims",    "higher_order", "quantized",       "_quantized", "prepacked",
                                                  "onednn", "mkldnn",   "mkl",          "sparse",          "inductor",   "profiler",
                                                  "c10d",   "symm_mem", "rngprims",     "_c10d_functional"};
  std::vector<std::string> found;
  const auto add = [&](const Node& node) {
    const std::string_view target = node.target;
    if (!target.starts_with(kPrefix)) return;
    const std::string_view space = target.substr(kPrefix.size(), target.find('.', kPrefix.size()) - kPrefix.size());
    if (std::ranges::find(kOwn, space) == kOwn.end() && std::ranges::find(found, target) == found.end()) found.emplace_back(target);
  };
  std::ranges::for_each(graph.nodes, add);
  for (const Subgraph& inner : graph.subgraphs) std::ranges::for_each(inner.nodes, add);
  return found;
}

std::vector<bool> computedNumbers(const ModelGraph& graph) {
  const Bindings bindings = bindBatch(graph, exportedBatch(graph));
  std::vector<bool> computed(graph.values.size(), false);
  for (std::size_t v = 0; v < computed.size(); ++v) {
    if (!graph.values[v].symbolic) continue;
    try {
      static_cast<void>(evaluate(*graph.values[v].symbolic, bindings));
    } catch (const Error&) {
      computed[v] = true;
    }
  }
  return computed;
}

bool isView(const Node& node) {
  constexpr std::array<std::string_view, 42> kViews = {"view",
                                                       "view_as",
                                                       "view_as_real",
                                                       "view_as_complex",
                                                       "real",
                                                       "imag",
                                                       "reshape",
                                                       "reshape_as",
                                                       "flatten",
                                                       "unflatten",
                                                       "ravel",
                                                       "transpose",
                                                       "permute",
                                                       "t",
                                                       "mT",
                                                       "mH",
                                                       "numpy_T",
                                                       "adjoint",
                                                       "swapaxes",
                                                       "swapdims",
                                                       "movedim",
                                                       "moveaxis",
                                                       "slice",
                                                       "select",
                                                       "narrow",
                                                       "split",
                                                       "split_with_sizes",
                                                       "tensor_split",
                                                       "chunk",
                                                       "unbind",
                                                       "unsqueeze",
                                                       "squeeze",
                                                       "expand",
                                                       "expand_as",
                                                       "broadcast_to",
                                                       "as_strided",
                                                       "diagonal",
                                                       "unfold",
                                                       "alias",
                                                       "detach",
                                                       "contiguous",
                                                       "to"};
  const std::string name = operatorName(node);
  return contains(kViews, name) || (name == "dropout" && !isRandomOperator(node));  // switched off, it returns its argument
}

std::vector<bool> needsGradient(const ModelGraph& graph) {
  const std::vector<ValueId> bases = viewedBases(graph);
  std::vector<bool> needs(graph.values.size(), false);
  const auto differentiable = [&](std::size_t v) { return graph.values[v].tensor && isDifferentiable(graph.values[v].tensor->dtype); };
  for (const StateTensor& parameter : graph.parameters) {
    needs[parameter.value.index()] = differentiable(parameter.value.index()) && graph.value(parameter.value).tensor->requiresGrad;
  }
  for (const Node& node : graph.nodes) {
    if (operatorName(node) == "detach" || runsWithoutGradient(node)) continue;
    const auto reads = readsOf(node);
    if (std::none_of(reads.begin(), reads.end(), [&](ValueId v) { return needs[v.index()]; })) continue;
    for (const ValueId output : node.outputs) needs[output.index()] = differentiable(output.index());
    if (!isInPlace(node) || needs[reads.front().index()]) continue;
    // Written into a view: what it views, and its other views, are read later under their old names.
    for (std::size_t v = 0; v < bases.size(); ++v) needs[v] = needs[v] || (bases[v] == bases[reads.front().index()] && differentiable(v));
  }
  return needs;
}

ValueId viewedBase(const ModelGraph& graph, ValueId value) {
  while (graph.value(value).origin == ValueOrigin::Node) {
    const Node& node = graph.node(graph.value(value).producer);
    const auto reads = readsOf(node);
    if (reads.empty() || !(isView(node) || isInPlace(node))) break;
    value = reads.front();
  }
  return value;
}

std::vector<ValueId> viewedBases(const ModelGraph& graph) {
  std::vector<ValueId> bases;
  for (std::size_t v = 0; v < graph.values.size(); ++v) bases.emplace_back(v);
  for (const Node& node : graph.nodes) {
    if (!isView(node) && !isInPlace(node)) continue;
    const auto reads = readsOf(node);
    if (reads.empty()) continue;
    for (const ValueId output : node.outputs) bases[output.index()] = bases[reads.front().index()];
  }
  return bases;
}

std::vector<bool> changedInPlace(const ModelGraph& graph) {
  const std::vector<ValueId> bases = viewedBases(graph);
  std::vector<bool> changedBase(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    for (const ValueId v : anyInside(graph, node, changesMemory) ? readsOf(node) : changedBy(graph, node))
      changedBase[bases[v.index()].index()] = true;
  }
  std::vector<bool> changed(graph.values.size(), false);
  for (std::size_t v = 0; v < changed.size(); ++v) changed[v] = changedBase[bases[v].index()];
  return changed;
}

std::vector<KeptTogether> keptTogether(const ModelGraph& graph) {
  const std::vector<ValueId> bases = viewedBases(graph);
  std::vector<std::vector<ValueId>> reads;
  for (const Node& node : graph.nodes) reads.push_back(readsOf(node));
  reads.push_back(graph.outputs);  // read once more after the last node
  std::vector<KeptTogether> groups;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const ValueId changed : changedBy(graph, graph.nodes[n])) {
      const ValueId base = bases[changed.index()];
      const bool computed = graph.value(base).origin == ValueOrigin::Node;
      NodeId first(computed ? graph.value(base).producer : NodeId(n));
      NodeId last(n);
      bool readLater = false;  // under a name older than the change
      for (std::size_t m = 0; m < reads.size(); ++m) {
        for (const ValueId v : reads[m]) {
          if (bases[v.index()] != base) continue;
          const bool older = graph.value(v).origin != ValueOrigin::Node || graph.value(v).producer < NodeId(n);
          readLater = readLater || (m > n && older);
          if (computed) continue;
          first = std::min(first, NodeId(m));
          last = std::max(last, NodeId(std::min(m, graph.nodes.size() - 1)));
        }
      }
      if (first < last && (readLater || !computed)) groups.push_back({first, last, NodeId(n), base});
    }
  }
  return groups;
}

std::vector<bool> recomputableNodes(const ModelGraph& graph) {
  const std::vector<bool> gradient = needsGradient(graph);
  const std::vector<bool> changed = changedInPlace(graph), computed = computedNumbers(graph);
  std::vector<bool> anywhere(graph.values.size(), false);  // values available on every rank
  for (std::size_t v = 0; v < graph.values.size(); ++v) {
    const ValueOrigin origin = graph.values[v].origin;
    anywhere[v] = (graph.values[v].symbolic && !computed[v]) || origin == ValueOrigin::Input || origin == ValueOrigin::Constant ||
                  origin == ValueOrigin::Buffer;
  }
  std::vector<bool> recomputable(graph.nodes.size(), false);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    const auto bound = [](const Node& inner) { return isRandomOperator(inner) || changesMemory(inner); };
    if (node.outputs.empty() || bound(node) || anyInside(graph, node, bound)) continue;
    const auto reads = readsOf(node);
    const bool fromAnywhere =
        std::all_of(reads.begin(), reads.end(), [&](ValueId v) { return anywhere[v.index()] && !changed[v.index()]; });
    const bool plain =
        std::none_of(node.outputs.begin(), node.outputs.end(), [&](ValueId v) { return gradient[v.index()] || changed[v.index()]; });
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
