#include "simulator/partition/stage_fold.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "simulator/costs/kept_values.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/costs/profile.h"
#include "simulator/model/autocast.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss.h"
#include "simulator/model/symbolic.h"
#include "simulator/partition/recomputed_ranges.h"

namespace pw {
namespace {

/// Memory while something runs, from some level on.
struct Curve {
  Bytes level = 0, peak = 0;

  void during(Bytes above) { peak = std::max(peak, level + above); }
  void change(Bytes bytes) {
    level += bytes;
    peak = std::max(peak, level);
  }
};

/// What a training step needs of the model's outputs: that which the default loss is made of; the others are dropped. Costs do not know of
/// another loss that a plan may name.
std::vector<ValueId> keptOutputs(const ModelGraph& graph) {
  if (graph.outputs.empty()) return {};
  return {graph.outputs[outputOf(graph, defaultLoss(graph))]};
}

/// How long computed memory is needed when nothing is kept for a backward. A view belongs to the value it shows.
class Lifetimes {
 public:
  Lifetimes(const ModelGraph& graph, const std::vector<std::vector<ValueId>>& reads, const std::vector<ValueId>& bases,
            const std::vector<Bytes>& bytes)
      : made_(graph.nodes.size()), ending_(graph.nodes.size() + 1), last_(graph.values.size(), NodeId(-1)) {
    std::vector<std::size_t> last(graph.values.size(), 0);
    const std::vector<ValueId> outputs = keptOutputs(graph);
    for (std::size_t n = 0; n <= graph.nodes.size(); ++n) {
      for (const ValueId v : n < graph.nodes.size() ? reads[n] : outputs) last[bases[v.index()].index()] = n;
    }
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : graph.nodes[n].outputs) {
        const Value& value = graph.value(v);
        if (!value.tensor || value.symbolic || bases[v.index()] != v) continue;
        if (bytes[v.index()] < 0) continue;  // a size that depends on data: nothing is known about it
        const std::size_t end = std::max(last[v.index()], n);
        made_[n].push_back({v, NodeId(n), NodeId(end), bytes[v.index()]});
        last_[v.index()] = NodeId(end);
        ending_[end].push_back(made_[n].back());
      }
    }
  }

  [[nodiscard]] Bytes madeBy(std::size_t node) const {
    Bytes bytes = 0;
    for (const Life& life : made_[node]) bytes += life.bytes;
    return bytes;
  }
  /// The values of a range whose last use is this node.
  [[nodiscard]] Bytes endingAt(std::size_t node, NodeId rangeBegin) const {
    Bytes bytes = 0;
    for (const Life& life : ending_[node]) bytes += life.from >= rangeBegin ? life.bytes : 0;
    return bytes;
  }
  /// Of computed memory; −1 where it is not known.
  [[nodiscard]] NodeId lastUse(ValueId base) const { return last_[base.index()]; }
  /// Of what this node makes, the values that nodes from `end` on use, with their bytes.
  [[nodiscard]] std::vector<std::pair<ValueId, Bytes>> leavingFrom(std::size_t node, NodeId end) const {
    std::vector<std::pair<ValueId, Bytes>> leaving;
    for (const Life& life : made_[node]) {
      if (life.to >= end) leaving.emplace_back(life.value, life.bytes);
    }
    return leaving;
  }
  /// The values of a range that later nodes use.
  [[nodiscard]] Bytes leaving(const NodeRange& range) const {
    Bytes bytes = 0;
    for (auto n = range.begin.index(); n < range.end.index(); ++n) {
      for (const Life& life : made_[n]) bytes += life.to >= range.end ? life.bytes : 0;
    }
    return bytes;
  }

 private:
  struct Life {
    ValueId value;
    NodeId from, to;
    Bytes bytes = 0;
  };
  std::vector<std::vector<Life>> made_, ending_;
  std::vector<NodeId> last_;  ///< by value
};

/// Of every value; −1 where it is not a tensor or its size depends on data.
std::vector<Bytes> sizesOf(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<Bytes> sizes;
  for (const Value& value : graph.values) {
    sizes.push_back(value.tensor ? knownBytes(*value.tensor, bindings).value_or(Bytes{-1}) : -1);
  }
  return sizes;
}

std::vector<double> flopsOf(const Profile& profile) {
  std::vector<double> flops;
  for (const NodeCost& node : profile.nodes) flops.push_back(node.flops);
  return flops;
}

/// Of values while a stage computes: in 16 bits where autocast makes them so, none of what fused attention keeps in registers.
std::vector<Bytes> computedSizes(const ModelGraph& graph, const Profile& profile, std::vector<Bytes> sizes) {
  const AutocastTypes types = autocastTypes(graph, profile.computing.precision, flopsOf(profile));
  for (std::size_t v = 0; v < sizes.size(); ++v) sizes[v] = types.isLower[v] && sizes[v] > 0 ? sizes[v] / 2 : sizes[v];
  if (profile.attention != Attention::Fused) return sizes;
  const std::vector<bool> fused = fusedAttentionValues(graph);
  for (std::size_t v = 0; v < sizes.size(); ++v) sizes[v] = fused[v] && sizes[v] > 0 ? 0 : sizes[v];
  return sizes;
}

std::vector<NodeId> keepersOf(const ModelGraph& graph, const Profile& profile, const std::vector<Bytes>& sizes) {
  const std::function<Bytes(ValueId)> known = [&](ValueId v) { return std::max<Bytes>(0, sizes[v.index()]); };
  const AutocastTypes types = autocastTypes(graph, profile.computing.precision, flopsOf(profile));
  return keptValues(graph, needsGradient(graph), types, known, known).by;
}

std::vector<std::vector<ValueId>> allReads(const ModelGraph& graph) {
  std::vector<std::vector<ValueId>> reads;
  for (const Node& node : graph.nodes) reads.push_back(readsOf(node));
  return reads;
}

}  // namespace

/// What the stages of one graph and profile share.
class FoldTables {
 public:
  FoldTables(const ModelGraph& graph, const Profile& profile)
      : graph_(graph),
        profile_(profile),
        bindings_(bindBatch(graph, profile.microbatch)),
        reads_(allReads(graph)),
        bases_(viewedBases(graph)),
        changes_(isLayerChain(graph) ? std::vector<InPlaceChange>() : changesInPlace(graph)),
        sizes_(sizesOf(graph, bindings_)),
        lifetimes_(graph, reads_, bases_, computedSizes(graph, profile, sizes_)),
        sums_(profile) {
    if (!isLayerChain(graph)) {
      needsGradient_ = needsGradient(graph);
      keptBy_ = keepersOf(graph, profile, sizes_);
    }
    const auto knows = [](const NodeCost& c) { return c.backwardChange != 0; };
    knowsBackward_ = knows(profile.loss) || std::any_of(profile.nodes.begin(), profile.nodes.end(), knows);
    const auto splits = [](const NodeCost& c) { return c.weight != 0; };
    splits_ = splits(profile.loss) || std::any_of(profile.nodes.begin(), profile.nodes.end(), splits);
  }

  [[nodiscard]] FoldedStage fold(const StageSpec& spec) const {
    FoldedStage stage;
    if (!profile_.sent.empty()) return ofLayers(spec);
    addState(spec, stage.cost);
    addTimes(spec, stage.cost);
    stage.copied = copiedBy(spec);
    const Curve curve = forward(spec);
    stage.forwardLevel = curve.level;
    stage.forwardPeak = curve.peak;
    stage.whole = backward(spec, false);
    stage.input = backward(spec, true);
    stage.splits = splits_;
    if (!splits_) return stage;
    stage.held = sums_.range(spec.begin, spec.end).heldForWeight + (isLast(spec) ? profile_.loss.heldForWeight : 0);
    stage.weightPeak = weight(spec).peak;
    return stage;
  }

 private:
  [[nodiscard]] FoldedStage ofLayers(const StageSpec& spec) const {
    FoldedStage stage;
    stage.complete = true;
    StageCost& cost = stage.cost;
    addState(spec, cost);
    cost.gradientBytes = 0;  // in the table's parameters, if anywhere
    cost.updatedBytes = cost.parameterBytes;
    const NodeCost sum = sums_.range(spec.begin, spec.end);
    cost.forward = sum.forward + profile_.actionOverhead;
    cost.backward = sum.backward + profile_.actionOverhead;
    cost.backwardInput = cost.backward - sum.weight;
    cost.backwardWeight = sum.weight + profile_.actionOverhead;
    cost.activationBytes = sum.saved;
    for (const NodeRange& range : spec.checkpoints) {
      const NodeCost again = sums_.range(range.begin, range.end);
      Bytes freed = again.saved;
      for (auto n = range.begin.index(); n < range.end.index(); ++n) freed -= keptIfRecomputed(graph_.nodes[n]).value_or(node(n).saved);
      cost.backward += again.forward;
      cost.backwardInput += again.forward;
      cost.activationBytes -= freed;
      cost.backwardPeak = cost.inputPeak += freed;  // from the start of the backward on, all is there
    }
    cost.freedByInput = std::max<Bytes>(0, cost.activationBytes - sum.heldForWeight);
    cost.addedByInput = std::max<Bytes>(0, sum.heldForWeight - cost.activationBytes);
    return stage;
  }

  /// Values that enter the stage and are changed in place in it.
  [[nodiscard]] std::vector<ValueId> copiedBy(const StageSpec& spec) const {
    std::set<ValueId> changed, copied;
    const auto first = std::ranges::lower_bound(changes_, spec.begin, {}, &InPlaceChange::node);
    for (auto change = first; change != changes_.end() && change->node < spec.end; ++change)
      changed.insert(change->bases.begin(), change->bases.end());
    for (auto n = spec.begin.index(); n < spec.end.index() && !changed.empty(); ++n) {
      for (const ValueId v : reads_[n]) {
        const Value& value = graph_.value(v);
        if (value.origin == ValueOrigin::Node && value.producer < spec.begin && changed.contains(bases_[v.index()])) copied.insert(v);
      }
    }
    return {copied.begin(), copied.end()};
  }

  [[nodiscard]] const NodeCost& node(std::size_t n) const { return profile_.nodes[n]; }
  [[nodiscard]] bool isLast(const StageSpec& spec) const { return spec.end.index() == graph_.nodes.size(); }
  [[nodiscard]] Bytes bytes(ValueId v) const {
    return sizes_[v.index()] >= 0 ? sizes_[v.index()] : bytesOf(*graph_.value(v).tensor, bindings_);
  }

  void addTimes(const StageSpec& spec, StageCost& stage) const {
    NodeCost sum = sums_.range(spec.begin, spec.end);
    if (isLast(spec)) {
      sum.forward += profile_.loss.forward;
      sum.backward += profile_.loss.backward;
      sum.weight += profile_.loss.weight;
    }
    Ns again = 0;
    for (const NodeRange& range : spec.checkpoints) again += sums_.range(range.begin, range.end).forward;
    const Ns whole = sum.backward + profile_.actionOverhead;
    stage.forward = sum.forward + profile_.actionOverhead;
    for (const NodeId n : spec.recomputed) stage.forward += node(n.index()).forward;
    stage.backward = whole + again;
    stage.backwardInput = (splits_ ? whole - sum.weight : whole / 2) + again;
    stage.backwardWeight = splits_ ? sum.weight + profile_.actionOverhead : whole - whole / 2;
  }

  void addState(const StageSpec& spec, StageCost& stage) const {
    for (const std::size_t p : spec.parameters) {
      const ValueId value = graph_.parameters.at(p).value;
      const TensorMeta& meta = *graph_.value(value).tensor;
      stage.parameterBytes += bytes(value);
      if (meta.requiresGrad && isDifferentiable(meta.dtype)) stage.gradientBytes += bytes(value);
    }
    stage.fixedBytes += castBytes(spec);
    for (const std::size_t b : spec.buffers) stage.fixedBytes += bytes(graph_.buffers.at(b).value);
    for (const std::size_t c : spec.constants) stage.fixedBytes += bytes(graph_.constants.at(c).value);
    for (const ValueId v : spec.modelInputs) {
      if (graph_.value(v).tensor) stage.dataBytes += bytes(v);
    }
    stage.updatedBytes = stage.gradientBytes;
  }

  /// Of the copies in 16 bits that autocast computes with: of float32 parameters that matrix products and the like read. They are kept for
  /// the whole step.
  [[nodiscard]] Bytes castBytes(const StageSpec& spec) const {
    if (profile_.computing.precision == DType::Unknown) return 0;
    std::set<ValueId> cast;
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      if (node(n).flops <= 0) continue;
      for (const ValueId value : reads_[n]) cast.insert(bases_[value.index()]);
    }
    Bytes sum = 0;
    for (const std::size_t p : spec.parameters) {
      const ValueId value = graph_.parameters.at(p).value;
      if (graph_.value(value).tensor->dtype == DType::Float32 && cast.contains(value)) sum += bytes(value) / 2;
    }
    return sum;
  }

  /// From nothing received on.
  [[nodiscard]] Curve forward(const StageSpec& spec) const {
    Curve curve;
    const std::vector<Bytes> received = receivedThatEnds(spec);
    auto range = spec.checkpoints.cbegin();
    for (auto n = spec.begin.index(); n < spec.end.index();) {
      if (range != spec.checkpoints.cend() && range->begin.index() == n) {
        const Bytes before = curve.level;
        for (; n < range->end.index(); ++n) {
          curve.during(node(n).forwardPeak);
          curve.change(lifetimes_.madeBy(n));
          curve.change(-lifetimes_.endingAt(n, range->begin));
        }
        curve.level = before + lifetimes_.leaving(*range++);
        continue;
      }
      curve.during(node(n).forwardPeak);
      curve.change(node(n).saved + received[n - spec.begin.index()]);
      ++n;
    }
    if (!isLast(spec)) return curve;
    curve.during(profile_.loss.forwardPeak);
    curve.change(profile_.loss.saved);
    return curve;
  }

  /// `held`: what its backward gives back, and the caller still holds.
  void undo(const NodeCost& cost, bool inputOnly, Bytes held, Curve& curve) const {
    curve.during(inputOnly ? cost.inputPeak : cost.backwardPeak);
    curve.change((knowsBackward_ ? cost.backwardChange : -cost.saved) + held);
    if (inputOnly) curve.change(cost.heldForWeight);
  }

  /// From the received gradients on. The caller of a backward holds the outputs and their gradients until it returns, both for the stage
  /// and for a checkpointed range, which first runs its forward again. What I keeps for W is not counted twice.
  [[nodiscard]] BackwardPeak backward(const StageSpec& spec, bool inputOnly) const {
    BackwardPeak result;
    result.holds = true;
    Curve curve;
    if (isLast(spec)) undo(profile_.loss, inputOnly, 0, curve);
    const std::vector<Bytes> held = heldByCaller(spec), received = receivedThatEnds(spec);
    const std::vector<Bytes> gradients = gradientsOfOutputs(spec);
    Bytes given = 0;        // gradients of outputs that the next node to do so gives back, and the caller holds
    Bytes heldOfRange = 0;  // added once the first node has, by itself, given its output's gradient back
    Bytes addedOfRange = 0;
    auto range = spec.checkpoints.crbegin();
    for (auto n = spec.end.index(); n > spec.begin.index(); --n) {
      if (range != spec.checkpoints.crend() && range->end.index() == n) {
        for (auto again = range->begin.index(); again < n; ++again) {
          curve.during(node(again).forwardPeak);
          curve.change(node(again).saved + received[again - spec.begin.index()]);
        }
        if (n == spec.end.index()) result.holds = false;  // the same gradient
        heldOfRange = lifetimes_.leaving(*range);
      }
      given += gradients[n - 1 - spec.begin.index()];
      undo(node(n - 1), inputOnly, held[n - 1 - spec.begin.index()], curve);
      if (node(n - 1).backwardChange != 0 || node(n - 1).backwardPeak > 0) {  // it makes a gradient of its input
        const Bytes kept = inputOnly ? node(n - 1).heldForWeight : 0;
        const Bytes ofRange = std::max<Bytes>(0, std::exchange(heldOfRange, Bytes{0}) - kept);
        if (!std::exchange(result.adds, true)) {  // the caller's gradients are added, and the curve begins anew from there
          result.before = curve.peak;
          result.level = curve.level;
          result.given = std::exchange(given, Bytes{0});
          result.ofRange = ofRange;
          result.kept = kept;
          curve = {};
        } else {
          curve.change(ofRange + std::exchange(given, Bytes{0}));
        }
        addedOfRange += ofRange;
      }
      if (range != spec.checkpoints.crend() && range->begin.index() == n - 1)
        curve.change(-lifetimes_.leaving(*range++) - std::exchange(addedOfRange, Bytes{0}));
    }
    (result.adds ? result.after : result.before) = curve.peak;
    return result;
  }

  /// By node of a stage: of the stage's outputs that it makes. Not those of checkpointed ranges, which are counted there.
  [[nodiscard]] std::vector<Bytes> gradientsOfOutputs(const StageSpec& spec) const {
    std::vector<Bytes> gradients(spec.end.index() - spec.begin.index(), 0);
    if (isLast(spec)) return gradients;
    auto range = spec.checkpoints.cbegin();
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      while (range != spec.checkpoints.cend() && range->end.index() <= n) ++range;
      if (range != spec.checkpoints.cend() && range->begin.index() <= n) continue;
      for (const auto& [value, bytes] : lifetimes_.leavingFrom(n, spec.end))
        gradients[n - spec.begin.index()] += needsGradient_[value.index()] ? bytes : Bytes{0};
    }
    return gradients;
  }

  /// Values from earlier stages that this node reads.
  [[nodiscard]] std::set<ValueId> receivedBy(std::size_t n, const StageSpec& spec) const {
    std::set<ValueId> received;
    for (const ValueId v : reads_[n]) {
      const ValueId base = bases_[v.index()];
      const Value& value = graph_.value(base);
      const bool isEarlier = value.origin == ValueOrigin::Node && value.producer < spec.begin;
      if (!isEarlier || !value.tensor || sizes_[base.index()] <= 0) continue;
      if (std::ranges::find(spec.recomputed, value.producer) == spec.recomputed.end()) received.insert(base);
    }
    return received;
  }

  /// By node of a stage: what it receives that the whole model frees after this node's forward, as nothing keeps it for a backward. The
  /// caller holds it until the backward.
  [[nodiscard]] std::vector<Bytes> receivedThatEnds(const StageSpec& spec) const {
    std::vector<Bytes> ends(spec.end.index() - spec.begin.index(), 0);
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      for (const ValueId base : receivedBy(n, spec)) {
        if (keptBy_[base.index()] < NodeId(0) && lifetimes_.lastUse(base) == NodeId(n))
          ends[n - spec.begin.index()] += sizes_[base.index()];
      }
    }
    return ends;
  }

  /// By node of a stage: what its backward gives back in the whole model, as nothing keeps it any longer, and the caller of the stage's
  /// backward, or of a checkpointed range's, holds until that returns: received values, and outputs.
  [[nodiscard]] std::vector<Bytes> heldByCaller(const StageSpec& spec) const {
    std::vector<Bytes> held(spec.end.index() - spec.begin.index(), 0);
    const auto add = [&](NodeId keeper, NodeId begin, NodeId end, Bytes bytes) {
      const bool isThere = keeper >= begin && keeper < end;
      if (isThere) held[keeper.index() - spec.begin.index()] += bytes;
      return isThere;
    };
    auto range = spec.checkpoints.cbegin();
    std::set<ValueId> received;
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      received.merge(receivedBy(n, spec));
      while (range != spec.checkpoints.cend() && range->end.index() <= n) ++range;
      const bool isInRange = range != spec.checkpoints.cend() && range->begin.index() <= n;
      for (const auto& [value, bytes] : lifetimes_.leavingFrom(n, isInRange ? range->end : spec.end)) {
        const NodeId keeper = keptBy_[value.index()];
        if (isInRange && add(keeper, range->begin, range->end, bytes)) continue;
        if (!isLast(spec) && lifetimes_.lastUse(value) >= spec.end) add(keeper, spec.begin, spec.end, bytes);
      }
    }
    for (const ValueId base : received) add(keptBy_[base.index()], spec.begin, spec.end, sizes_[base.index()]);
    return held;
  }

  [[nodiscard]] Curve weight(const StageSpec& spec) const {
    Curve curve;
    for (auto n = spec.end.index(); n-- > spec.begin.index();) {
      curve.during(node(n).weightPeak);
      curve.change(-node(n).heldForWeight);
    }
    return curve;
  }

  const ModelGraph& graph_;
  const Profile& profile_;
  const Bindings bindings_;
  std::vector<std::vector<ValueId>> reads_;  ///< by node
  std::vector<ValueId> bases_;               ///< by value
  std::vector<InPlaceChange> changes_;       ///< by node
  std::vector<Bytes> sizes_;                 ///< by value
  Lifetimes lifetimes_;
  std::vector<bool> needsGradient_;  ///< by value
  std::vector<NodeId> keptBy_;       ///< by value, as in `KeptValues`; empty for a layer table
  CostSums sums_;
  bool knowsBackward_ = false, splits_ = false;
};

Bytes BackwardPeak::with(Bytes gradients) const {
  const Bytes first = gradients + before, held = holds ? std::min(gradients, given) : Bytes{0};
  return adds ? std::max(first, gradients + level + ofRange + std::max<Bytes>(0, held - kept) + after) : first;
}

StageCost FoldedStage::with(Bytes received, Bytes gradientsIn) const {
  StageCost stage = cost;
  if (complete) return stage;
  stage.activationBytes = std::max<Bytes>(0, forwardLevel + received);
  stage.forwardPeak = std::max(forwardPeak + received, stage.activationBytes);
  stage.backwardPeak = whole.with(gradientsIn);
  stage.inputPeak = input.with(gradientsIn);
  if (!splits) return stage;
  stage.freedByInput = std::max<Bytes>(0, stage.activationBytes - held);
  stage.addedByInput = std::max<Bytes>(0, held - stage.activationBytes);
  stage.weightPeak = weightPeak;
  return stage;
}

StageFolds::StageFolds(const ModelGraph& graph, const Profile& profile) : tables_(std::make_unique<const FoldTables>(graph, profile)) {}
StageFolds::~StageFolds() = default;
FoldedStage StageFolds::fold(const StageSpec& stage) const { return tables_->fold(stage); }

}  // namespace pw
