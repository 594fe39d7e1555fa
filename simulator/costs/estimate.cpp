#include "simulator/costs/estimate.h"
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/costs/expected_sizes.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile_check.h"
#include "simulator/model/autocast.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/weight_part.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

/// Bytes of a value in the type used while computing.
Bytes widthOf(const ModelGraph& graph, ValueId v, const Bindings& bindings, const std::vector<bool>& isLower) {
  const Bytes bytes = bytesOf(*graph.value(v).tensor, bindings);
  return isLower[v.index()] ? bytes / 2 : bytes;
}

/// What a node reads and writes. A product reads 16 bits of each number; float32 activations are read and their copies written first, while
/// copies of parameters are there from the step's beginning.
double bytesMoved(const ModelGraph& graph, std::size_t n, const Bindings& bindings, const AutocastTypes& types,
                  const std::vector<ValueId>& bases) {
  const Node& node = graph.nodes[n];
  if (countingOf(node) == Counting::Nothing) return 0;
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

/// Part of a node's backward that is for parameters alone, where the engine leaves their gradients for W: all where no computed value needs
/// a gradient, half where one does.
double weightPart(const ModelGraph& graph, const Node& node, const std::vector<bool>& parameters, const std::vector<bool>& gradient) {
  if (weightPartOf(graph, node, parameters, gradient) == WeightPart::None) return 0;
  const auto reads = readsOf(node);
  const bool inputs = std::any_of(reads.begin(), reads.end(), [&](ValueId v) { return gradient[v.index()] && !parameters[v.index()]; });
  return inputs ? 0.5 : 1;
}

/// Memory of every node: forwards make their outputs; backwards make gradients where no other did, and free their output's and what was
/// saved. W needs the output's gradient and what the operator reads, which is freed when the last reader's W is done.
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
      return 0;  // as above
    }
  }

  const ModelGraph& graph_;
  const Bindings& bindings_;
  const std::vector<bool>& gradient_;
  const AutocastTypes& types_;
};

/// What does not depend on operators.
Profile withCluster(Profile profile, const Cluster& cluster) {
  profile.machine = {cluster.name, cluster.deviceName, 0, cluster.deviceName};
  profile.link = linkBetween(cluster, Rank(0), Rank(1));
  profile.optimizerNsPerByte =
      cluster.memoryBytesPerSecond > 0 ? 3e9 / cluster.memoryBytesPerSecond : 0;  // read gradient and weight, write weight
  return profile;
}

/// FLOPs of every node; 0 where a data-dependent size is unknown.
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

Profile estimate(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, DType precision) {
  if (isLayerChain(graph)) return withCluster(profileOf(graph), cluster);
  if (precision != DType::Unknown && !cluster.peakFlops.contains(std::string(precisionName(precision)))) {
    throw UsageError(fmt::format("Cluster {} has no peak in {}; add {} to its peak_flops, or omit --precision.", cluster.name,
                                 precisionName(precision), precisionName(precision)));
  }
  const Bindings bindings = bindExpected(graph, microbatch);
  const std::vector<bool> gradient = needsGradient(graph);
  const std::vector<bool> parameters = wholeParameters(graph, gradient);
  const std::vector<double> flops = flopsOf(graph, bindings);
  const AutocastTypes types = autocastTypes(graph, precision, flops);
  const std::vector<ValueId> bases = viewedBases(graph);
  Profile profile;
  profile.computing.precision = precision;
  profile.model = graph.name;
  profile.microbatch = microbatch;
  profile.estimated = true;
  profile = withCluster(std::move(profile), cluster);
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    NodeCost cost;
    double bytes = 0;
    cost.flops = flops[n];
    try {
      bytes = bytesMoved(graph, n, bindings, types, bases);
    } catch (const Error&) {
      // a size that depends on data and cannot be expected: `notCounted` names it
    }
    const double peak = peakFor(cluster, graph, node, types.casts[n] ? precision : DType::Unknown) * efficiencyAt(cluster, cost.flops);
    const auto time = [&](double work, double moved) {
      const double seconds =
          std::max(peak > 0 ? work / peak : 0, cluster.memoryBytesPerSecond > 0 ? moved / cluster.memoryBytesPerSecond : 0);
      return moved + work == 0 ? Ns{0} : nsOf(seconds * 1e9, node.target) + cluster.launchOverhead;
    };
    cost.forward = time(cost.flops, bytes);
    bool trained = false;
    for (const ValueId v : node.outputs) {
      trained = trained || gradient[v.index()];
      if (gradient[v.index()] && bytes > 0) cost.saved += widthOf(graph, v, bindings, types.isKeptLower);
    }
    if (trained) cost.backward = cost.flops > 0 ? 2 * time(cost.flops, bytes) : time(0, bytes);
    cost.weight = static_cast<Ns>(static_cast<double>(cost.backward) * weightPart(graph, node, parameters, gradient));
    profile.nodes.push_back(cost);
  }
  MemoryEstimate(graph, bindings, gradient, types).fill(profile.nodes);
  requireSummable(profile, fmt::format("the estimate of {} on cluster {}", graph.name, cluster.name));
  return profile;
}

}  // namespace pw
