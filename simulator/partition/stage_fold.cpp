#include "simulator/partition/stage_fold.h"

#include <algorithm>
#include <set>
#include <utility>

#include "simulator/costs/layer_chain.h"
#include "simulator/costs/profile.h"
#include "simulator/model/autocast.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/partition/held_by_caller.h"
#include "simulator/partition/lifetimes.h"
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

/// Of every value; −1 where it is not a tensor or its size depends on data.
std::vector<Bytes> sizesOf(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<Bytes> sizes;
  for (const Value& value : graph.values) {
    sizes.push_back(value.tensor ? knownBytes(*value.tensor, bindings).value_or(Bytes{-1}) : -1);
  }
  return sizes;
}

AutocastTypes typesOf(const ModelGraph& graph, const Profile& profile) {
  std::vector<double> flops;
  for (const NodeCost& node : profile.nodes) flops.push_back(node.flops);
  return autocastTypes(graph, profile.computing.precision, flops);
}

/// Of values while a stage computes: in 16 bits where autocast makes them so, none of what fused attention keeps in registers.
std::vector<Bytes> computedSizes(const ModelGraph& graph, const Profile& profile, std::vector<Bytes> sizes) {
  const AutocastTypes types = typesOf(graph, profile);
  for (std::size_t v = 0; v < sizes.size(); ++v) sizes[v] = types.isLower[v] && sizes[v] > 0 ? sizes[v] / 2 : sizes[v];
  if (profile.attention != Attention::Fused) return sizes;
  const std::vector<bool> fused = fusedAttentionValues(graph);
  for (std::size_t v = 0; v < sizes.size(); ++v) sizes[v] = fused[v] && sizes[v] > 0 ? 0 : sizes[v];
  return sizes;
}

/// By node: whether it has a W.
std::vector<bool> splitNodes(const Profile& profile) {
  std::vector<bool> splits;
  for (const NodeCost& node : profile.nodes) splits.push_back(node.weight > 0);
  return splits;
}

/// Whether it was measured there; estimates assume what fused kernels keep.
bool isOnCpu(const Profile& profile) { return !profile.estimated && profile.machine.device == "cpu"; }

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
    if (!isLayerChain(graph)) keepers_ = keepersOf(graph, typesOf(graph, profile), bases_, splitNodes(profile), isOnCpu(profile));
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
    stage.released = releasedBy(spec);
    const HeldByCaller held = heldByCaller(graph_, lifetimes_, keepers_, spec);
    const Curve curve = forward(spec, held);
    stage.forwardLevel = curve.level;
    stage.forwardPeak = curve.peak;
    stage.backwardPeak = backwardPeak(spec, held, false);
    stage.inputPeak = backwardPeak(spec, held, true);
    stage.splits = splits_;
    if (!splits_) return stage;
    stage.held = sums_.range(spec.begin, spec.end).heldForWeight + held.forWeights + (isLast(spec) ? profile_.loss.heldForWeight : 0);
    stage.weightPeak = weight(spec).peak;
    stage.heldInputs = heldInputsOf(spec);
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
    cost.optimizer = sum.optimizer;
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

  [[nodiscard]] std::vector<std::pair<ValueId, Bytes>> heldInputsOf(const StageSpec& spec) const {
    std::set<ValueId> bases;
    std::vector<std::pair<ValueId, Bytes>> held;
    for (auto n = spec.begin.index(); n < spec.end.index(); ++n) {
      for (const ValueId v : reads_[n]) {
        const Value& value = graph_.value(v);
        const ValueId base = bases_[v.index()];
        const std::vector<NodeId>& holders = keepers_.holders[base.index()];
        const auto first = std::ranges::lower_bound(holders, spec.begin);
        const bool isHeld = first != holders.end() && *first < spec.end;
        if (!isHeld || value.origin != ValueOrigin::Node || value.producer >= spec.begin || !bases.insert(base).second) continue;
        held.emplace_back(v, lifetimes_.of(base).bytes);
      }
    }
    std::ranges::sort(held);
    return held;
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
      if (isTrained(meta)) stage.gradientBytes += bytes(value);
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

  /// What the last range of a stage makes for other stages, without gradients: the backward does not hold it.
  template <typename Each>
  void forReleased(const NodeRange& range, const StageSpec& spec, const Each& each) const {
    if (range.end != spec.end) return;
    for (auto n = range.begin.index(); n < range.end.index(); ++n) {
      for (const Life& life : lifetimes_.madeBy(n)) {
        if (life.to >= range.end && !keepers_.needsGradient[life.value.index()]) each(life);
      }
    }
  }
  /// With views of them.
  [[nodiscard]] std::vector<ValueId> releasedBy(const StageSpec& spec) const {
    std::set<ValueId> bases;
    for (const NodeRange& range : spec.checkpoints) forReleased(range, spec, [&](const Life& life) { bases.insert(life.value); });
    std::vector<ValueId> values;
    for (auto n = spec.begin.index(); n < spec.end.index() && !bases.empty(); ++n) {
      for (const ValueId made : graph_.nodes[n].outputs) {
        if (bases.contains(bases_[made.index()])) values.push_back(made);
      }
    }
    std::ranges::sort(values);
    return values;
  }
  /// Of what a checkpointed range makes, until its backward: what later nodes use.
  [[nodiscard]] Bytes keptOf(const NodeRange& range, const StageSpec& spec) const {
    Bytes bytes = lifetimes_.leaving(range);
    forReleased(range, spec, [&](const Life& life) { bytes -= life.bytes; });
    return bytes;
  }

  /// From nothing received on.
  [[nodiscard]] Curve forward(const StageSpec& spec, const HeldByCaller& held) const {
    Curve curve;
    auto range = spec.checkpoints.cbegin();
    for (auto n = spec.begin.index(); n < spec.end.index();) {
      if (range != spec.checkpoints.cend() && range->begin.index() == n) {
        const Bytes before = curve.level;
        for (; n < range->end.index(); ++n) {
          curve.during(node(n).forwardPeak);
          for (const Life& made : lifetimes_.madeBy(n)) curve.change(made.bytes);
          curve.change(-lifetimes_.endingAt(n, range->begin));
        }
        curve.level = before + keptOf(*range++, spec);
        continue;
      }
      curve.during(node(n).forwardPeak);
      curve.change(node(n).saved + held.afterForward[n - spec.begin.index()]);
      ++n;
    }
    if (!isLast(spec)) return curve;
    curve.during(profile_.loss.forwardPeak);
    curve.change(profile_.loss.saved);
    return curve;
  }

  /// `held`: of what the backward gives back, by the caller.
  void undo(const NodeCost& cost, bool inputOnly, Bytes held, Curve& curve) const {
    curve.during(inputOnly ? cost.inputPeak : cost.backwardPeak);
    if (knowsBackward_) return curve.change((inputOnly ? cost.inputChange : cost.backwardChange) + held);
    curve.change(held - cost.saved);
    if (inputOnly) curve.change(cost.heldForWeight);
  }

  /// Above the received gradients, from these on. The caller of a backward holds the outputs and their gradients until it returns, both for
  /// the stage and for a checkpointed range, which first runs its forward again.
  [[nodiscard]] Bytes backwardPeak(const StageSpec& spec, const HeldByCaller& held, bool inputOnly) const {
    Curve curve;
    if (isLast(spec)) undo(profile_.loss, inputOnly, 0, curve);
    auto range = spec.checkpoints.crbegin();
    for (auto n = spec.end.index(); n > spec.begin.index(); --n) {
      if (range != spec.checkpoints.crend() && range->end.index() == n) {
        for (auto again = range->begin.index(); again < n; ++again) {
          curve.during(node(again).forwardPeak);
          curve.change(node(again).saved + held.afterForward[again - spec.begin.index()]);
        }
      }
      const std::size_t place = n - 1 - spec.begin.index();
      undo(node(n - 1), inputOnly, (inputOnly ? held.afterInput : held.afterBackward)[place], curve);
      if (range != spec.checkpoints.crend() && range->begin.index() == n - 1) curve.change(-keptOf(*range++, spec));
    }
    return curve.peak;
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
  Keepers keepers_;  ///< none for a layer table
  CostSums sums_;
  bool knowsBackward_ = false, splits_ = false;
};

StageCost FoldedStage::with(Bytes received, Bytes gradientsIn) const {
  StageCost stage = cost;
  if (complete) return stage;
  stage.activationBytes = std::max<Bytes>(0, forwardLevel + received);
  stage.forwardPeak = std::max(forwardPeak + received, stage.activationBytes);
  stage.backwardPeak = backwardPeak + gradientsIn;
  stage.inputPeak = inputPeak + gradientsIn;
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
