#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/autocast.h"
#include "simulator/graph_facts.h"
#include "simulator/partition.h"
#include "simulator/profile.h"

namespace pw {
namespace {

const TensorMeta* tensorArgument(const ModelGraph& graph, const Node& node, std::string_view name) {
  for (const NamedArgument& argument : node.inputs) {
    const auto* id = std::get_if<ValueId>(&argument.value);
    if (argument.name == name && id != nullptr && graph.value(*id).tensor) return &*graph.value(*id).tensor;
  }
  return nullptr;
}

double elements(const TensorMeta& meta, const Bindings& bindings) {
  double count = 1;
  for (const SymbolicInt& size : meta.sizes) count *= static_cast<double>(evaluate(size, bindings));
  return count;
}

double dimension(const TensorMeta& meta, std::size_t fromEnd, const Bindings& bindings) {
  return meta.sizes.size() < fromEnd ? 1 : static_cast<double>(evaluate(meta.sizes[meta.sizes.size() - fromEnd], bindings));
}

/// Of a value as it is while computing.
Bytes widthOf(const ModelGraph& graph, ValueId v, const Bindings& bindings, const std::vector<bool>& isLower) {
  const Bytes bytes = bytesOf(*graph.value(v).tensor, bindings);
  return isLower[v.index()] ? bytes / 2 : bytes;
}

/// What a node reads and writes. A product reads 16 bits of each number; float32 activations are read and their copies written first, while copies of
/// parameters are there from the step's beginning.
double bytesMoved(const ModelGraph& graph, std::size_t n, const Bindings& bindings, const AutocastTypes& types, const std::vector<ValueId>& bases) {
  const Node& node = graph.nodes[n];
  if (isView(node) && operatorName(node) != "contiguous" && operatorName(node) != "reshape" && operatorName(node) != "to") return 0;
  double bytes = 0;
  for (const ValueId v : readsOf(node)) {
    if (!graph.value(v).tensor) continue;
    const auto width = static_cast<double>(widthOf(graph, v, bindings, types.isLower));
    const bool isCast = types.casts[n] && !types.isLower[v.index()] && graph.value(v).tensor->dtype == DType::Float32;
    const bool isKept = graph.value(bases[v.index()]).origin == ValueOrigin::Parameter;
    bytes += !isCast ? width : isKept ? width / 2 : 2 * width;
  }
  for (const ValueId v : node.outputs) {
    if (graph.value(v).tensor) bytes += static_cast<double>(widthOf(graph, v, bindings, types.isLower));
  }
  return bytes;
}

double efficiencyAt(const Cluster& cluster, double flops) {
  const auto& table = cluster.efficiency;
  if (table.empty()) return 1;
  if (flops <= table.front().first) return table.front().second;
  for (std::size_t i = 1; i < table.size(); ++i) {
    if (flops > table[i].first) continue;
    const double t = (std::log(flops) - std::log(table[i - 1].first)) / (std::log(table[i].first) - std::log(table[i - 1].first));
    return table[i - 1].second + t * (table[i].second - table[i - 1].second);
  }
  return table.back().second;
}

double peakFor(const Cluster& cluster, const ModelGraph& graph, const Node& node, DType castTo) {
  DType dtype = DType::Float32;
  if (!node.outputs.empty() && graph.value(node.outputs.front()).tensor) dtype = graph.value(node.outputs.front()).tensor->dtype;
  if (castTo != DType::Unknown) dtype = castTo;
  const std::string key = dtype == DType::BFloat16 ? "bf16" : dtype == DType::Float16 ? "fp16" : "fp32";
  const auto found = cluster.peakFlops.find(key);
  if (found != cluster.peakFlops.end()) return found->second;
  return cluster.peakFlops.empty() ? 0 : cluster.peakFlops.begin()->second;
}

/// Each element of the output, transposed of the input, takes part in one multiply-add per weight of its channel.
double convolutionFlops(const ModelGraph& graph, const Node& node, double out, const Bindings& bindings) {
  const TensorMeta* weight = tensorArgument(graph, node, "weight");
  const TensorMeta* input = tensorArgument(graph, node, "input");
  if (weight == nullptr || input == nullptr || weight->sizes.empty()) return 0;
  const bool transposed = operatorName(node).find("transpose") != std::string::npos ||
                          std::any_of(node.inputs.begin(), node.inputs.end(), [](const NamedArgument& a) {
                            const auto* flag = std::get_if<bool>(&a.value);
                            return a.name == "transposed" && flag != nullptr && *flag;
                          });
  const double channels = static_cast<double>(evaluate(weight->sizes.front(), bindings));
  return channels == 0 ? 0 : 2 * (transposed ? elements(*input, bindings) : out) * elements(*weight, bindings) / channels;
}

/// The operators whose weight gradients the engine leaves for W (backends/torch_weights.h).
bool canSplit(const std::string& name) {
  constexpr std::array<std::string_view, 14> kNames{"linear", "addmm", "mm", "bmm", "matmul", "convolution", "embedding", "layer_norm", "rms_norm",
                                                    "group_norm", "batch_norm", "add", "mul", "baddbmm"};
  return name.rfind("conv", 0) == 0 || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// Part of a node's backward that is for parameters alone: all where no computed value needs a gradient, half where one does, none without
/// parameters.
double weightPart(const ModelGraph& graph, const Node& node, const std::vector<bool>& gradient) {
  if (!canSplit(operatorName(node))) return 0;
  bool weights = false, inputs = false;
  for (const ValueId v : readsOf(node)) {
    if (!gradient[v.index()]) continue;
    (graph.value(viewedBase(graph, v)).origin == ValueOrigin::Parameter ? weights : inputs) = true;
  }
  return !weights ? 0 : inputs ? 0.5 : 1;
}

/// Memory of every node: forwards make their outputs; backwards make gradients where no other did, and free their output's and what was saved.
/// W needs the output's gradient and what the operator reads, which is freed when the last reader's W is done.
class MemoryEstimate {
 public:
  MemoryEstimate(const ModelGraph& graph, const Bindings& bindings, const std::vector<bool>& gradient, const AutocastTypes& types)
      : graph_(graph), bindings_(bindings), gradient_(gradient), types_(types) {}

  void fill(std::vector<NodeCost>& costs) {
    std::vector<bool> made(graph_.values.size(), false), held(graph_.values.size(), false);
    for (const ValueId v : graph_.outputs) made[viewedBase(graph_, v).index()] = true;
    for (std::size_t n = costs.size(); n-- > 0;) {
      const Node& node = graph_.nodes[n];
      NodeCost& cost = costs[n];
      Bytes results = 0, gone = 0;
      for (const ValueId v : node.outputs) {
        if (viewedBase(graph_, v) != v) continue;
        results += bytesFor(v);
        if (gradient_[v.index()]) gone += bytesFor(v);
      }
      cost.forwardPeak = results;
      if (cost.backward == 0) continue;
      for (const ValueId v : readsOf(node)) {
        const ValueId base = viewedBase(graph_, v);
        if (graph_.value(base).origin != ValueOrigin::Node) continue;
        if (cost.weight > 0 && !held[base.index()]) cost.heldForWeight += bytesFor(base);
        held[base.index()] = held[base.index()] || cost.weight > 0;
        if (!gradient_[base.index()]) continue;
        cost.backwardPeak += bytesFor(base);
        if (!made[base.index()]) cost.backwardChange += bytesFor(base);
        made[base.index()] = true;
      }
      if (cost.weight > 0) cost.heldForWeight += gone;
      cost.backwardChange -= gone + cost.saved;
    }
  }

 private:
  [[nodiscard]] Bytes bytesFor(ValueId v) const {
    try {
      return graph_.value(v).tensor && !graph_.value(v).symbolic ? widthOf(graph_, v, bindings_, types_.isLower) : 0;
    } catch (const Error&) {
      return 0;  // a size that depends on data
    }
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  const std::vector<bool>& gradient_;
  const AutocastTypes& types_;
};

/// FLOPs of every node; 0 where a size depends on data and nothing is known.
std::vector<double> flopsOf(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<double> flops;
  for (const Node& node : graph.nodes) {
    flops.push_back(0);
    try {
      flops.back() = forwardFlops(graph, node, bindings);
    } catch (const Error&) {
      continue;
    }
  }
  return flops;
}

}  // namespace

double forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings) {
  double inside = 0;
  for (const NamedArgument& argument : node.inputs) {
    const auto* inner = std::get_if<GraphArg>(&argument.value);
    if (inner == nullptr) continue;
    for (const Node& n : graph.subgraphs[inner->index].nodes) inside += forwardFlops(graph, n, bindings);
  }
  if (node.outputs.empty() || !graph.value(node.outputs.front()).tensor) return inside;
  const std::string name = operatorName(node);
  const auto tensor = [&](std::string_view argument) { return tensorArgument(graph, node, argument); };
  const double out = elements(*graph.value(node.outputs.front()).tensor, bindings);
  const auto product = [&](std::string_view left) { return tensor(left) == nullptr ? 0 : 2 * out * dimension(*tensor(left), 1, bindings); };
  if (name == "linear") return product("input");
  if (name == "mm" || name == "bmm" || name == "matmul" || name == "mv" || name == "dot") return product("self");
  if (name == "addmm") return product("mat1");
  if (name == "baddbmm") return product("batch1");
  if (name.find("conv") != std::string::npos) return convolutionFlops(graph, node, out, bindings);
  if (name.find("scaled_dot_product") != std::string::npos && tensor("query") != nullptr && tensor("key") != nullptr) {
    return 2 * (elements(*tensor("query"), bindings) + out) * dimension(*tensor("key"), 2, bindings);  // scores, then weighted values
  }
  return inside;
}

Profile estimate(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, DType precision) {
  if (precision != DType::Unknown && !cluster.peakFlops.contains(std::string(precisionName(precision)))) {
    throw UsageError(fmt::format("Cluster {} has no peak in {}; add {} to its peak_flops, or leave out --precision.", cluster.name, precisionName(precision), precisionName(precision)));
  }
  const Bindings bindings = bindBatch(graph, microbatch);
  const std::vector<bool> gradient = needsGradient(graph);
  const std::vector<double> flops = flopsOf(graph, bindings);
  const AutocastTypes types = autocastTypes(graph, precision, flops);
  const std::vector<ValueId> bases = viewedBases(graph);
  Profile profile;
  profile.computing.precision = precision;
  profile.model = graph.name;
  profile.microbatch = microbatch;
  profile.estimated = true;
  profile.machine = {cluster.name, cluster.deviceName, 0, cluster.deviceName};
  profile.link = linkBetween(cluster, Rank(0), Rank(1));
  profile.optimizerNsPerByte = cluster.memoryBytesPerSecond > 0 ? 3e9 / cluster.memoryBytesPerSecond : 0;  // read gradient and weight, write weight
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    NodeCost cost;
    double bytes = 0;
    cost.flops = flops[n];
    try {
      bytes = bytesMoved(graph, n, bindings, types, bases);
    } catch (const Error&) {
      // a data-dependent size: counted as free, as nothing is known about it
    }
    const double peak = peakFor(cluster, graph, node, types.casts[n] ? precision : DType::Unknown) * efficiencyAt(cluster, cost.flops);
    const auto time = [&](double work, double moved) {
      const double seconds = std::max(peak > 0 ? work / peak : 0, cluster.memoryBytesPerSecond > 0 ? moved / cluster.memoryBytesPerSecond : 0);
      return moved + work == 0 ? Ns{0} : static_cast<Ns>(std::llround(seconds * 1e9)) + cluster.launchOverhead;
    };
    cost.forward = time(cost.flops, bytes);
    bool trained = false;
    for (const ValueId v : node.outputs) {
      trained = trained || gradient[v.index()];
      if (gradient[v.index()] && bytes > 0) cost.saved += widthOf(graph, v, bindings, types.isKeptLower);
    }
    if (trained) cost.backward = cost.flops > 0 ? 2 * time(cost.flops, bytes) : time(0, bytes);
    cost.weight = static_cast<Ns>(static_cast<double>(cost.backward) * weightPart(graph, node, gradient));
    profile.nodes.push_back(cost);
  }
  MemoryEstimate(graph, bindings, gradient, types).fill(profile.nodes);
  return profile;
}

}  // namespace pw
