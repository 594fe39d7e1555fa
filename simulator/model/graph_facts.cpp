#include "simulator/model/graph_facts.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "simulator/model/node_arguments.h"
#include "simulator/model/symbolic.h"
#include "simulator/operators/operators.h"

namespace pw {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

/// Of a node under no_grad, which outputs are which of its inputs, changed in place: these keep their gradient, as PyTorch's `with
/// no_grad(): w.clamp_(…)` leaves `w` the leaf that it is. All other outputs have none.
std::vector<std::pair<ValueId, ValueId>> changedWithoutGradient(const ModelGraph& graph, const Node& node) {
  std::vector<std::pair<ValueId, ValueId>> same;
  const auto body = std::ranges::find_if(node.inputs, [](const NamedArgument& a) { return std::holds_alternative<GraphArg>(a.value); });
  if (body == node.inputs.end()) return same;
  const Subgraph& inner = graph.subgraphs.at(std::get<GraphArg>(body->value).index);
  const std::vector<ValueId> reads = readsOf(node);
  std::map<ValueId, ValueId> inputOf;  // by value inside
  for (std::size_t i = 0; i < std::min(inner.inputs.size(), reads.size()); ++i) inputOf.emplace(inner.inputs[i], reads[i]);
  for (const Node& step : inner.nodes) {
    const std::vector<ValueId> changed = readsOf(step);
    if (!isInPlace(step) || changed.empty() || !inputOf.contains(changed.front())) continue;
    for (const ValueId output : step.outputs) inputOf.emplace(output, inputOf.at(changed.front()));
  }
  for (std::size_t i = 0; i < std::min(inner.outputs.size(), node.outputs.size()); ++i) {
    if (const auto input = inputOf.find(inner.outputs[i]); input != inputOf.end()) same.emplace_back(node.outputs[i], input->second);
  }
  return same;
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

bool changesMemory(const Node& node) { return isInPlace(node) || movesStatistics(node); }

/// Values whose memory the node itself changes.
std::vector<ValueId> changedBy(const ModelGraph& graph, const Node& node) {
  std::vector<ValueId> reads = readsOf(node);
  if (isInPlace(node)) {
    reads.resize(std::min<std::size_t>(1, reads.size()));
  } else if (movesStatistics(node)) {
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
  bool off = false;  // not in training, or with probability 0
  bool hasRate = false;
  for (const NamedArgument& a : node.inputs) {
    const auto* number = std::get_if<double>(&a.value);
    const auto* flag = std::get_if<bool>(&a.value);
    if (a.name == "p" && number != nullptr && *number == 0) off = true;
    if ((a.name == "train" || a.name == "training") && flag != nullptr && !*flag) off = true;
    if ((a.name == "dropout_p" || a.name == "dropout") && number != nullptr && *number > 0) hasRate = true;
  }
  const Operator& op = operatorOf(node.target);
  if (op.name.empty()) return hasRate && !off;
  switch (op.draws) {
    case Draws::Never: return false;
    case Draws::Always: return true;
    case Draws::InTraining: return !off;
    case Draws::AtRate: return hasRate && !off;
  }
  return false;
}

bool isInPlace(const Node& node) {
  const std::string name = operatorName(node);
  if (name.size() < 2 || node.target.rfind(kAten, 0) != 0) return false;
  return name.rfind("__i", 0) == 0 || (name.back() == '_' && name[name.size() - 2] != '_');
}

bool waitsForDevice(const ModelGraph& graph, const Node& node) {
  switch (operatorOf(node.target).waits) {
    case Waits::Never: return false;
    case Waits::Always: return true;
    case Waits::ForMasks: break;
  }
  const auto reads = readsOf(node);
  return std::any_of(reads.begin() + std::min<std::ptrdiff_t>(1, std::ssize(reads)), reads.end(), [&](ValueId v) {
    const auto& tensor = graph.value(v).tensor;
    return tensor && (tensor->dtype == DType::Bool || tensor->dtype == DType::UInt8);
  });
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
    computed[v] = !knownNumber(*graph.values[v].symbolic, bindings);
  }
  return computed;
}

bool isView(const Node& node) {
  const Result result = operatorOf(node.target).result;
  return !isInPlace(node) && (result == Result::View || (result == Result::ViewWhenOff && !isRandomOperator(node)));
}

bool isCopy(const Node& node) { return operatorOf(node.target).result == Result::Copy && !isInPlace(node); }

bool movesStatistics(const Node& node) {
  if (operatorOf(node.target).statistics == Statistics::None) return false;
  return std::none_of(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& a) {
    const auto* training = std::get_if<bool>(&a.value);
    return (a.name == "training" || a.name == "train" || a.name == "use_input_stats") && training != nullptr && !*training;
  });
}

std::vector<bool> needsGradient(const ModelGraph& graph) {
  const std::vector<ValueId> bases = viewedBases(graph);
  std::vector<bool> needs(graph.values.size(), false);
  const auto differentiable = [&](std::size_t v) { return graph.values[v].tensor && isDifferentiable(graph.values[v].tensor->dtype); };
  for (const StateTensor& parameter : graph.parameters) {
    needs[parameter.value.index()] = differentiable(parameter.value.index()) && graph.value(parameter.value).tensor->requiresGrad;
  }
  for (const Node& node : graph.nodes) {
    if (operatorName(node) == "detach") continue;
    if (runsWithoutGradient(node)) {
      for (const auto& [output, input] : changedWithoutGradient(graph, node)) needs[output.index()] = needs[input.index()];
      continue;
    }
    const auto reads = readsOf(node);
    if (std::none_of(reads.begin(), reads.end(), [&](ValueId v) { return needs[v.index()]; })) continue;
    for (const ValueId output : node.outputs) needs[output.index()] = differentiable(output.index());
    if (!isInPlace(node) || needs[reads.front().index()]) continue;
    // Written into a view: what it views, and its other views, are read later under their old names.
    for (std::size_t v = 0; v < bases.size(); ++v) needs[v] = needs[v] || (bases[v] == bases[reads.front().index()] && differentiable(v));
  }
  return needs;
}

std::vector<std::string> unreachedParameters(const ModelGraph& graph, ValueId output) {
  const std::vector<ValueId> bases = viewedBases(graph);
  const std::vector<bool> changed = changedInPlace(graph), needs = needsGradient(graph);
  const auto memoryOf = [&](ValueId v) { return (changed[v.index()] ? bases[v.index()] : v).index(); };
  std::vector<bool> reached(graph.values.size(), false);
  reached[memoryOf(output)] = needs[output.index()];
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    if (operatorName(node) == "detach") continue;
    if (runsWithoutGradient(node)) {
      for (const auto& [made, input] : changedWithoutGradient(graph, node)) {
        if (reached[memoryOf(made)]) reached[memoryOf(input)] = reached[memoryOf(input)] || needs[input.index()];
      }
      continue;
    }
    if (std::ranges::none_of(node.outputs, [&](ValueId v) { return reached[memoryOf(v)]; })) continue;
    for (const ValueId v : readsOf(node)) reached[memoryOf(v)] = reached[memoryOf(v)] || needs[v.index()];
  }
  std::set<std::string> found;  // by storage: tied parameters are one
  for (const StateTensor& parameter : graph.parameters) {
    if (reached[memoryOf(parameter.value)]) found.insert(storageOf(parameter));
  }
  std::vector<std::string> names;
  for (const StateTensor& parameter : graph.parameters) {
    if (needs[parameter.value.index()] && found.insert(storageOf(parameter)).second) names.push_back(parameter.name);
  }
  return names;
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

std::vector<bool> changedInPlace(const ModelGraph& graph) { return changedInPlace(graph, NodeId(0), NodeId(graph.nodes.size())); }

std::vector<bool> changedInPlace(const ModelGraph& graph, NodeId begin, NodeId end) {
  const std::vector<ValueId> bases = viewedBases(graph);
  std::vector<bool> changedBase(graph.values.size(), false);
  for (auto n = begin.index(); n < end.index(); ++n) {
    const Node& node = graph.nodes[n];
    for (const ValueId v : anyInside(graph, node, changesMemory) ? readsOf(node) : changedBy(graph, node))
      changedBase[bases[v.index()].index()] = true;
  }
  std::vector<bool> changed(graph.values.size(), false);
  for (std::size_t v = 0; v < changed.size(); ++v) changed[v] = changedBase[bases[v].index()];
  return changed;
}

std::vector<KeptTogether> keptTogether(const ModelGraph& graph) {
  if (isLayerChain(graph)) return {};  // nothing is changed in place
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
  if (isLayerChain(graph)) return std::vector<bool>(graph.nodes.size(), false);  // each has a trained parameter
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
