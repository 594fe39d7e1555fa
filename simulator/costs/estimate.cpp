#include "simulator/costs/estimate.h"
#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "simulator/costs/expected_sizes.h"
#include "simulator/costs/kept_values.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile_check.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/model/autocast.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/model/weight_part.h"
#include "simulator/operators/operators.h"
#include "simulator/text/rounding.h"

namespace pw {
namespace {

/// How large values are while computing.
struct Sizes {
  const ModelGraph& graph;
  const Bindings& bindings;
  const AutocastTypes& types;
  std::vector<bool> inRegisters;  ///< by value: never in memory

  /// Nothing where the size depends on data and cannot be expected.
  [[nodiscard]] std::optional<Bytes> computed(ValueId v) const {
    const std::optional<Bytes> bytes = traced(v);
    return bytes && types.isLower[v.index()] ? *bytes / 2 : bytes;
  }
  [[nodiscard]] std::optional<Bytes> traced(ValueId v) const {
    return inRegisters[v.index()] ? Bytes{0} : knownBytes(*graph.value(v).tensor, bindings);
  }
  /// Whether all that a node makes stays in registers.
  [[nodiscard]] bool isFused(const Node& node) const {
    return !node.outputs.empty() && std::ranges::all_of(node.outputs, [&](ValueId v) { return inRegisters[v.index()]; });
  }
};

/// What a node reads and writes. A product reads 16 bits of each number, in fp8 8; float32 activations are read and their copies written
/// first, while copies of parameters are there from the step's beginning. Nothing where a size is not known.
std::optional<double> bytesMoved(const Sizes& sizes, std::size_t n, const std::vector<ValueId>& bases, bool inEight) {
  const ModelGraph& graph = sizes.graph;
  const AutocastTypes& types = sizes.types;
  const Node& node = graph.nodes[n];
  if (countingOf(node) == Counting::Nothing) return 0;
  double bytes = 0;
  for (const ValueId v : readsOf(node)) {
    if (!graph.value(v).tensor) continue;
    const std::optional<Bytes> size = sizes.computed(v);
    if (!size) return std::nullopt;
    const auto width = static_cast<double>(*size);
    const bool isCast = types.casts[n] && !types.isLower[v.index()] && graph.value(v).tensor->dtype == DType::Float32;
    const bool isKept = graph.value(bases[v.index()]).origin == ValueOrigin::Parameter;
    const double read = !isCast ? width : isKept ? width / 2 : 2 * width;
    bytes += inEight ? read / 2 : read;
  }
  for (const ValueId v : node.outputs) {
    if (!graph.value(v).tensor) continue;
    const std::optional<Bytes> size = sizes.computed(v);
    if (!size) return std::nullopt;
    bytes += static_cast<double>(*size);
  }
  return bytes;
}

/// `fp32`, `bf16`, `fp16` or `fp64`: where a node's work is done.
std::string typeName(const ModelGraph& graph, const Node& node, DType castTo) {
  DType dtype = DType::Float32;
  if (!node.outputs.empty() && graph.value(node.outputs.front()).tensor) dtype = graph.value(node.outputs.front()).tensor->dtype;
  if (castTo != DType::Unknown) dtype = castTo;
  return dtype == DType::BFloat16 ? "bf16" : dtype == DType::Float16 ? "fp16" : dtype == DType::Float64 ? "fp64" : "fp32";
}

/// Of a type that the cluster does not list the lowest of those that it does.
double peakOf(const Cluster& cluster, const std::string& type) {
  const auto found = cluster.peakFlops.find(type);
  if (found != cluster.peakFlops.end()) return found->second;
  if (cluster.peakFlops.empty()) return 0;
  return std::ranges::min_element(cluster.peakFlops, {}, [](const auto& entry) { return entry.second; })->second;
}

/// Of one node's kernels: the slower of products at the type's rate and memory, and their launches; 0 where nothing is done.
Ns kernelTime(const Cluster& cluster, const std::string& type, double flops, double bytes, int kernels, const std::string& target) {
  if (flops + bytes == 0) return 0;
  const double peak = peakOf(cluster, type) * efficiencyAt(cluster, type, flops);
  const double bandwidth = cluster.memoryBytesPerSecond * cluster.memoryEfficiency;
  const double seconds = std::max(peak > 0 ? flops / peak : 0, bandwidth > 0 ? bytes / bandwidth : 0);
  return nsOf(seconds * 1e9, target) + kernels * cluster.launchOverhead;
}

/// Of attention that is not fused: its scores in the type that it computes in. 0 where a size is not known.
Bytes scoreBytes(const Sizes& sizes, std::size_t n) {
  constexpr double kMost = 1e18;  // as `requireSummable` refuses
  const Node& node = sizes.graph.nodes[n];
  if (node.outputs.empty() || !sizes.graph.value(node.outputs.front()).tensor) return 0;
  const Bytes element = sizes.types.casts[n] ? 2 : bytesPerElement(sizes.graph.value(node.outputs.front()).tensor->dtype);
  return static_cast<Bytes>(std::min(kMost, attentionScores(sizes.graph, node, sizes.bindings).value_or(0) * static_cast<double>(element)));
}

/// Whether fp8 training computes it in 8 bits: a product with a parameter.
bool isLinear(const ModelGraph& graph, const Node& node, const std::vector<ValueId>& bases) {
  const Operator& op = operatorOf(node.target);
  if (op.work != Work::Product && op.work != Work::SummedProduct && op.work != Work::GroupedProduct) return false;
  const auto reads = readsOf(node);
  return std::ranges::any_of(reads, [&](ValueId v) {
    const Value& base = graph.value(bases[v.index()]);
    return base.origin == ValueOrigin::Parameter && base.tensor && base.tensor->sizes.size() >= 2;
  });
}

/// A node's backward, and the part of it that the engine leaves for W.
struct BackwardTime {
  Ns whole = 0, weight = 0;
};

/// Whether the operator is a product of two factors, of which each has a gradient of as much work as the product.
bool hasTwoFactors(Work work) {
  return work == Work::Product || work == Work::SummedProduct || work == Work::GroupedProduct || work == Work::TensorDot ||
         work == Work::Convolution;
}

/// Of a product of two factors: a product for each that needs a gradient; where a trained summand alone needs one, the time `sum` of its
/// sum.
BackwardTime backwardOfProduct(const Node& node, const std::vector<bool>& parameters, const std::vector<bool>& gradient, bool leavesWeights,
                               Ns forward, Ns sum) {
  std::int64_t inputs = 0, weights = 0;
  for (const ValueId factor : trainedFactors(node, gradient)) ++(parameters[factor.index()] ? weights : inputs);
  const Ns weight = weights > 0 ? weights * forward : leavesWeights || inputs == 0 ? sum : Ns(0);
  return {inputs * forward + weight, leavesWeights ? weight : Ns(0)};
}

/// Memory of every node: forwards make their outputs; backwards make gradients where no other did, and free their output's and what was
/// saved. W needs the output's gradient and what the operator reads, which is freed when the last reader's W is done.
class MemoryEstimate {
 public:
  /// `scores`: by node, of attention in memory: these and the probabilities, or their gradients, are there while it computes.
  MemoryEstimate(const Sizes& sizes, const std::vector<bool>& gradient, const std::vector<Bytes>& scores, const KeptValues& kept)
      : graph_(sizes.graph), sizes_(sizes), gradient_(gradient), scores_(scores), kept_(kept) {}

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
      cost.forwardPeak = results + kept_.ofNode[n] + 2 * scores_[n] + passingBytes(node);
      if (cost.backward == 0 && !sizes_.isFused(node)) {
        cost.backwardChange -= cost.saved;
        cost.inputChange = cost.backwardChange;
        continue;
      }
      if (cost.backward > 0) cost.backwardPeak = 2 * scores_[n];
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
      cost.inputPeak = cost.backwardPeak;
      if (cost.weight > 0) cost.heldForWeight += gone;
      cost.backwardChange -= gone + cost.saved;
      cost.inputChange = cost.backwardChange + cost.heldForWeight;
    }
  }

 private:
  /// What a node reads that is not kept, and so no part of what is there before it.
  [[nodiscard]] Bytes passingBytes(const Node& node) const {
    if (isView(node)) return 0;
    Bytes bytes = 0;
    std::set<ValueId> seen;
    for (const ValueId v : readsOf(node)) {
      const ValueId base = viewedBase(graph_, v);
      if (graph_.value(base).origin == ValueOrigin::Node && !kept_.whole[base.index()] && seen.insert(base).second) bytes += bytesFor(base);
    }
    return bytes;
  }
  [[nodiscard]] Bytes bytesFor(ValueId v) const {
    const bool isTensor = graph_.value(v).tensor && !graph_.value(v).symbolic;
    return isTensor ? sizes_.computed(v).value_or(Bytes{0}) : 0;  // 0 of a size that depends on data: `notCounted` names it
  }

  const ModelGraph& graph_;
  const Sizes& sizes_;
  const std::vector<bool>& gradient_;
  const std::vector<Bytes>& scores_;
  const KeptValues& kept_;
};

/// The output that a loss beside the graph is made of; nothing where there is none, or nothing is trained by it.
std::optional<ValueId> lossInput(const ModelGraph& graph, const Loss& loss, const std::vector<bool>& gradient) {
  if (graph.outputs.empty() || (loss.kind != LossKind::CrossEntropy && loss.kind != LossKind::MeanSquaredError)) return std::nullopt;
  const ValueId output = graph.outputs[outputOf(graph, loss)];
  const bool isTrained = graph.value(output).tensor && gradient[output.index()];
  return isTrained ? std::optional(output) : std::nullopt;
}

/// What the loss takes. A cross-entropy keeps its logarithms, squares the output; two tensors of their size, or one, are there while the
/// gradient is made. An output in 16 bits of autocast is cast to its type as traced first.
void addLoss(Profile& profile, const Sizes& sizes, const std::vector<bool>& gradient, const KeptValues& kept, const Loss& loss,
             const Cluster& cluster) {
  const ModelGraph& graph = sizes.graph;
  const std::optional<ValueId> output = lossInput(graph, loss, gradient);
  if (!output) return;
  const Bytes own = sizes.computed(*output).value_or(Bytes{0});
  const Bytes traced = knownBytes(*graph.value(*output).tensor, sizes.bindings).value_or(Bytes{0});
  const Bytes cast = own == traced ? Bytes{0} : traced;
  const bool isCrossEntropy = loss.kind == LossKind::CrossEntropy;
  const ValueId base = viewedBase(graph, *output);
  const bool passes = graph.value(base).origin == ValueOrigin::Node && !kept.whole[base.index()];
  const Bytes passing = passes ? own : Bytes{0};  // there from its maker to here, where it is freed or becomes the loss's
  if (passes) profile.nodes[graph.value(base).producer.index()].saved += passing;
  NodeCost& cost = profile.loss;
  const auto time = [&](int times) {
    const auto bytes = static_cast<double>(times) * static_cast<double>(traced) + static_cast<double>(cast > 0 ? cast + own : Bytes{0});
    return kernelTime(cluster, "fp32", 0, bytes, cast > 0 ? 3 : 2, "the loss");
  };
  cost.forward = time(isCrossEntropy ? 2 : 4);  // reads, writes; of squares also what is summed, and reads the target
  cost.backward =
      time(isCrossEntropy ? 4 : 3);  // the gradient of the logarithms is written, it and they are read, and the gradient written
  const Bytes keeps = isCrossEntropy ? traced : cast > 0 ? cast : passing;
  cost.forwardPeak = cast + traced;
  cost.saved = keeps - passing;
  cost.backwardPeak = cost.inputPeak = (isCrossEntropy ? 2 : 1) * traced;
  cost.backwardChange = cost.inputChange = own - keeps;
}

/// What does not depend on operators. A layer table's own time of the optimizer stays.
Profile withCluster(Profile profile, const Cluster& cluster) {
  profile.machine = {cluster.name, cluster.deviceName, 0, cluster.deviceName};
  placeOn(profile, cluster);
  const bool hasOwn =
      profile.optimizerNsPerByte != 0 || std::ranges::any_of(profile.nodes, [](const NodeCost& n) { return n.optimizer != 0; });
  if (!hasOwn && cluster.memoryBytesPerSecond > 0)  // read gradient and weight, write weight
    profile.optimizerNsPerByte = 3e9 / (cluster.memoryBytesPerSecond * cluster.memoryEfficiency);
  return profile;
}

/// FLOPs of every node; 0 where a data-dependent size is unknown.
std::vector<double> flopsOf(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<double> flops;
  for (const Node& node : graph.nodes) flops.push_back(forwardFlops(graph, node, bindings).value_or(0));
  return flops;
}

}  // namespace

std::optional<Impossible> obstacleToPrecision(const Cluster& cluster, DType precision) {
  if (precision == DType::Unknown || cluster.peakFlops.contains(std::string(precisionName(precision)))) return std::nullopt;
  return Impossible{fmt::format("Cluster {} has no peak in {}; add {} to its peak_flops, or omit --precision.", cluster.name,
                                precisionName(precision), precisionName(precision))};
}

Profile estimate(const ModelGraph& graph, std::int64_t microbatch, const Cluster& cluster, DType precision, Attention attention,
                 const std::optional<Loss>& loss) {
  if (isLayerChain(graph)) return withCluster(profileOf(graph), cluster);
  if (const auto no = obstacleToPrecision(cluster, precision)) refuse(*no);
  const bool withEight = precision == DType::Float8;
  const DType castTo = withEight ? DType::BFloat16 : precision;
  const Bindings bindings = bindExpected(graph, microbatch);
  const std::vector<bool> gradient = needsGradient(graph);
  const std::vector<bool> parameters = wholeParameters(graph, gradient);
  const std::vector<double> flops = flopsOf(graph, bindings);
  const AutocastTypes types = autocastTypes(graph, castTo, flops);
  const std::vector<ValueId> bases = viewedBases(graph);
  const Sizes sizes{graph, bindings, types,
                    attention == Attention::Fused ? fusedAttentionValues(graph) : std::vector<bool>(graph.values.size(), false)};
  Profile profile;
  profile.computing.precision = precision;
  profile.attention = attention;
  profile.model = graph.name;
  profile.microbatch = microbatch;
  profile.estimated = true;
  profile.nodes.resize(graph.nodes.size());
  profile = withCluster(std::move(profile), cluster);
  const auto sizeOf = [](const std::optional<Bytes>& bytes) { return bytes.value_or(Bytes{0}); };
  const KeptValues kept = keptValues(
      graph, gradient, types, [&](ValueId v) { return sizeOf(sizes.computed(v)); }, [&](ValueId v) { return sizeOf(sizes.traced(v)); });
  std::map<std::string, double> work;  // by type: FLOPs
  std::vector<Bytes> scores;           // by node: of attention, in memory
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    scores.push_back(0);
    if (flops[n] == 0 && sizes.isFused(node)) continue;
    NodeCost& cost = profile.nodes[n];
    const bool inEight = withEight && isLinear(graph, node, bases);
    cost.flops = flops[n];
    const std::optional<double> moved = bytesMoved(sizes, n, bases, inEight);
    if (moved && attention == Attention::Unfused) scores.back() = scoreBytes(sizes, n);
    double bytes = moved.value_or(0);                 // 0 of a size that depends on data and cannot be expected: `notCounted` names it
    bytes += 4 * static_cast<double>(scores.back());  // written by a product, read and written by the softmax, read by a product
    const std::string type = inEight ? "fp8" : typeName(graph, node, types.casts[n] ? castTo : DType::Unknown);
    work[type] += cost.flops;
    cost.forward = kernelTime(cluster, type, cost.flops, bytes, scores.back() > 0 ? 3 : 1, node.target);
    bool trained = false;
    for (const ValueId v : node.outputs) {
      trained = trained || gradient[v.index()];
      if (graph.value(v).tensor) cost.saved += kept.bytes[v.index()];
    }
    cost.saved += kept.ofNode[n];
    if (trained) cost.saved += scores.back();  // the probabilities
    if (!trained) continue;
    const BackwardTime backward = [&]() -> BackwardTime {
      const bool leavesWeights = weightPartOf(graph, node, parameters, gradient) != WeightPart::None;
      const Ns moving = kernelTime(cluster, type, 0, bytes, 1, node.target);
      if (cost.flops > 0 && hasTwoFactors(operatorOf(node.target).work))
        return backwardOfProduct(node, parameters, gradient, leavesWeights, cost.forward, moving);
      const Ns whole = cost.flops > 0 ? 2 * cost.forward : moving;
      const auto reads = readsOf(node);
      const bool inputs = std::ranges::any_of(reads, [&](ValueId v) { return gradient[v.index()] && !parameters[v.index()]; });
      return {whole, !leavesWeights ? Ns(0) : inputs ? whole / 2 : whole};
    }();
    cost.backward = backward.whole;
    cost.weight = backward.weight;
  }
  profile.backwardFlops = backwardFlops(graph, gradient, flops);
  MemoryEstimate(sizes, gradient, scores, kept).fill(profile.nodes);
  addLoss(profile, sizes, gradient, kept, loss ? *loss : defaultLoss(graph), cluster);
  const auto most = std::ranges::max_element(work, {}, [](const auto& entry) { return entry.second; });
  if (most != work.end()) profile.peakFlops = peakOf(cluster, most->first);
  requireSummable(profile, fmt::format("the estimate of {} on cluster {}", graph.name, cluster.name));
  return profile;
}

}  // namespace pw
