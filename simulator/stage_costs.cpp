#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "schedules/error.h"
#include "simulator/graph_facts.h"
#include "simulator/plan.h"
#include "simulator/rounding.h"

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

/// How long computed memory is needed when nothing is kept for a backward. A view belongs to the value it shows.
class Lifetimes {
 public:
  Lifetimes(const ModelGraph& graph, const Bindings& bindings) : made_(graph.nodes.size()), ending_(graph.nodes.size() + 1) {
    std::vector<std::size_t> last(graph.values.size(), 0);
    for (std::size_t n = 0; n <= graph.nodes.size(); ++n) {
      for (const ValueId v : n < graph.nodes.size() ? readsOf(graph.nodes[n]) : graph.outputs) last[viewedBase(graph, v).index()] = n;
    }
    for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const ValueId v : graph.nodes[n].outputs) {
        const Value& value = graph.value(v);
        if (!value.tensor || value.symbolic || viewedBase(graph, v) != v) continue;
        Bytes bytes = 0;
        try {
          bytes = bytesOf(*value.tensor, bindings);
        } catch (const Error&) {
          continue;  // a size that depends on data: nothing is known about it
        }
        const std::size_t end = std::max(last[v.index()], n);
        made_[n].push_back({NodeId(n), NodeId(end), bytes});
        ending_[end].push_back(made_[n].back());
      }
    }
  }

  [[nodiscard]] Bytes madeBy(std::size_t node) const {
    Bytes bytes = 0;
    for (const Life& life : made_[node]) bytes += life.bytes;
    return bytes;
  }
  /// What a range made that its node is the last to use.
  [[nodiscard]] Bytes endingAt(std::size_t node, NodeId rangeBegin) const {
    Bytes bytes = 0;
    for (const Life& life : ending_[node]) bytes += life.from >= rangeBegin ? life.bytes : 0;
    return bytes;
  }
  /// What a range makes for the nodes behind it.
  [[nodiscard]] Bytes leaving(const NodeRange& range) const {
    Bytes bytes = 0;
    for (auto n = range.begin.index(); n < range.end.index(); ++n) {
      for (const Life& life : made_[n]) bytes += life.to >= range.end ? life.bytes : 0;
    }
    return bytes;
  }

 private:
  struct Life {
    NodeId from, to;
    Bytes bytes = 0;
  };
  std::vector<std::vector<Life>> made_, ending_;
};

/// Times and memory of one stage, folded from those of its nodes.
class StageFolder {
 public:
  StageFolder(const StageSpec& spec, const Profile& profile, const Lifetimes& lifetimes, bool isLast)
      : spec_(spec), profile_(profile), lifetimes_(lifetimes), isLast_(isLast), sums_(sumOf()) {
    const auto knows = [](const NodeCost& c) { return c.backwardChange != 0; };
    knowsBackward_ = knows(profile.loss) || std::any_of(profile.nodes.begin(), profile.nodes.end(), knows);
    const auto splits = [](const NodeCost& c) { return c.weight != 0; };
    splits_ = splits(profile.loss) || std::any_of(profile.nodes.begin(), profile.nodes.end(), splits);
  }

  void time(StageCost& stage) const {
    Ns again = 0;
    for (const NodeRange& range : spec_.checkpoints) {
      for (auto n = range.begin.index(); n < range.end.index(); ++n) again += node(n).forward;
    }
    const Ns whole = sums_.backward + profile_.actionOverhead;
    stage.forward = sums_.forward + profile_.actionOverhead;
    for (const NodeId n : spec_.recomputed) stage.forward += node(n.index()).forward;
    stage.backward = whole + again;
    stage.backwardInput = (splits_ ? whole - sums_.weight : whole / 2) + again;
    stage.backwardWeight = splits_ ? sums_.weight + profile_.actionOverhead : whole - whole / 2;
  }

  /// `received`: values from other ranks and model inputs; `gradientsIn`: gradients of the stage's outputs. All bytes.
  void memory(StageCost& stage, Bytes received, Bytes gradientsIn) const {
    const Curve forward = this->forward(received);
    stage.activationBytes = std::max<Bytes>(0, forward.level);
    stage.forwardPeak = std::max(forward.peak, stage.activationBytes);
    const Curve whole = backward(false, gradientsIn), input = backward(true, gradientsIn);
    stage.backwardPeak = whole.peak;
    stage.inputPeak = input.peak;
    if (!splits_) return;
    Bytes held = isLast_ ? profile_.loss.heldForWeight : 0;
    for (auto n = spec_.begin.index(); n < spec_.end.index(); ++n) held += node(n).heldForWeight;
    stage.freedByInput = std::max<Bytes>(0, stage.activationBytes - held);
    stage.addedByInput = std::max<Bytes>(0, held - stage.activationBytes);
    stage.weightPeak = weight().peak;
  }

 private:
  [[nodiscard]] const NodeCost& node(std::size_t n) const { return profile_.nodes[n]; }

  [[nodiscard]] NodeCost sumOf() const {
    NodeCost sum = CostSums(profile_).range(spec_.begin, spec_.end);
    if (!isLast_) return sum;
    sum.forward += profile_.loss.forward;
    sum.backward += profile_.loss.backward;
    sum.weight += profile_.loss.weight;
    return sum;
  }

  [[nodiscard]] Curve forward(Bytes received) const {
    Curve curve{received, received};
    auto range = spec_.checkpoints.cbegin();
    for (auto n = spec_.begin.index(); n < spec_.end.index();) {
      if (range != spec_.checkpoints.cend() && range->begin.index() == n) {
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
      curve.change(node(n++).saved);
    }
    if (!isLast_) return curve;
    curve.during(profile_.loss.forwardPeak);
    curve.change(profile_.loss.saved);
    return curve;
  }

  void undo(const NodeCost& cost, bool inputOnly, Curve& curve) const {
    curve.during(cost.backwardPeak);
    curve.change(knowsBackward_ ? cost.backwardChange : -cost.saved);
    if (inputOnly) curve.change(cost.heldForWeight);
  }

  /// From the received gradients on. Who calls backward holds outputs and their gradients until it returns: of the stage, and of a checkpointed
  /// range, which first runs its forward again. What I keeps for W is not counted twice.
  [[nodiscard]] Curve backward(bool inputOnly, Bytes gradients) const {
    Curve curve{gradients, gradients};
    if (isLast_) undo(profile_.loss, inputOnly, curve);
    Bytes held = gradients, heldOfRange = 0;  // added once the first node has, by itself, given its output's gradient back
    Bytes addedOfRange = 0;
    auto range = spec_.checkpoints.crbegin();
    for (auto n = spec_.end.index(); n > spec_.begin.index(); --n) {
      if (range != spec_.checkpoints.crend() && range->end.index() == n) {
        for (auto again = range->begin.index(); again < n; ++again) {
          curve.during(node(again).forwardPeak);
          curve.change(node(again).saved);
        }
        if (n == spec_.end.index()) held = 0;  // the same gradient
        heldOfRange = lifetimes_.leaving(*range);
      }
      undo(node(n - 1), inputOnly, curve);
      if (node(n - 1).backwardChange != 0) {
        const Bytes kept = inputOnly ? node(n - 1).heldForWeight : 0;
        const Bytes ofRange = std::max<Bytes>(0, std::exchange(heldOfRange, 0) - kept);
        curve.change(ofRange + std::max<Bytes>(0, std::exchange(held, 0) - kept));
        addedOfRange += ofRange;
      }
      if (range != spec_.checkpoints.crend() && range->begin.index() == n - 1) curve.change(-lifetimes_.leaving(*range++) - std::exchange(addedOfRange, 0));
    }
    return curve;
  }

  [[nodiscard]] Curve weight() const {
    Curve curve;
    for (auto n = spec_.end.index(); n-- > spec_.begin.index();) {
      curve.during(node(n).weightPeak);
      curve.change(-node(n).heldForWeight);
    }
    return curve;
  }

  const StageSpec& spec_;
  const Profile& profile_;
  const Lifetimes& lifetimes_;
  bool isLast_, knowsBackward_ = false, splits_ = false;
  NodeCost sums_;
};

/// The ranks of a pipeline that hold one of these stages.
std::set<Rank> ranksOf(const std::vector<Stage>& stages, const Placement& placement) {
  std::set<Rank> ranks;
  for (const Stage s : stages) {
    ranks.insert(placement.rankOfStage.at(s.index()));
    if (placement.bidirectional()) ranks.insert(placement.mirrorOfStage.at(s.index()));
  }
  return ranks;
}

/// Of the copies in 16 bits that autocast computes with: of float32 parameters that matrix products and the like read. They are kept for the whole step.
Bytes castBytes(const ModelGraph& graph, const StageSpec& spec, const Profile& profile, const Bindings& bindings) {
  if (profile.computing.precision == DType::Unknown) return 0;
  std::set<ValueId> cast;
  for (NodeId node = spec.begin; node < spec.end; ++node.value) {
    if (profile.nodes.at(node.index()).flops <= 0) continue;
    for (const ValueId value : readsOf(graph.node(node))) cast.insert(viewedBase(graph, value));
  }
  Bytes bytes = 0;
  for (const std::size_t p : spec.parameters) {
    const ValueId value = graph.parameters.at(p).value;
    const TensorMeta& meta = *graph.value(value).tensor;
    if (meta.dtype == DType::Float32 && cast.contains(value)) bytes += bytesOf(meta, bindings) / 2;
  }
  return bytes;
}

void addState(const ModelGraph& graph, const StageSpec& spec, const Profile& profile, const Bindings& bindings, StageCost& stage) {
  const auto bytes = [&](ValueId v) { return bytesOf(*graph.value(v).tensor, bindings); };
  for (const std::size_t p : spec.parameters) {
    const ValueId value = graph.parameters.at(p).value;
    const TensorMeta& meta = *graph.value(value).tensor;
    stage.parameterBytes += bytes(value);
    if (meta.requiresGrad && isDifferentiable(meta.dtype)) stage.gradientBytes += bytes(value);
  }
  stage.fixedBytes += castBytes(graph, spec, profile, bindings);
  for (const std::size_t b : spec.buffers) stage.fixedBytes += bytes(graph.buffers.at(b).value);
  for (const std::size_t c : spec.constants) stage.fixedBytes += bytes(graph.constants.at(c).value);
  for (const ValueId v : spec.modelInputs) {
    if (graph.value(v).tensor) stage.dataBytes += bytes(v);
  }
  stage.updatedBytes = stage.gradientBytes;
}

void addMessages(const Partition& partition, const Profile& profile, const Placement& placement, CostTable& table) {
  std::map<std::pair<Stage, Stage>, std::pair<Bytes, Bytes>> bytes;  // forward and backward
  for (const Transfer& t : partition.transfers) {
    auto& [forward, backward] = bytes[{t.from, t.to}];
    forward += t.bytes;
    if (t.gradient) backward += t.bytes;
  }
  for (const auto& [ends, size] : bytes) {
    const bool local = placement.rankOfStage.at(ends.first.index()) == placement.rankOfStage.at(ends.second.index());
    const auto add = [&](Stage from, Stage to, bool backward, Bytes n) {
      table.messages.push_back({from, to, backward, n, local ? 0 : profile.link.latency, local ? 0 : transferTime(profile.link, n)});
    };
    add(ends.first, ends.second, false, size.first);
    if (size.second > 0) add(ends.second, ends.first, true, size.second);
  }
}

/// Reduce-scatter and all-gather in a ring (Patarasuk and Yuan, 2009): each of 2 (D − 1) rounds passes on a D-th of the bytes.
Ns ringTime(const LinkSpec& link, Bytes bytes, std::int64_t holders) {
  return holders < 2 || bytes == 0 ? 0 : 2 * (holders - 1) * link.latency + transferTime(link, 2 * (holders - 1) * bytes / holders);
}

void addReductions(const Partition& partition, const Profile& profile, const Placement& placement, int replicas, CostTable& table) {
  std::vector<Bytes> own;
  for (const StageCost& stage : table.stages) own.push_back(stage.gradientBytes);
  double reduceTime = 0;
  for (const SharedParameter& shared : partition.shared) {
    const auto ranks = static_cast<std::int64_t>(ranksOf(shared.stages, placement).size());
    if (shared.sharing == Sharing::Transmit) {
      for (const Stage s : shared.stages) table.stages[s.index()].updatedBytes -= s == shared.stages.front() ? 0 : shared.bytes;
    }
    if (ranks < 2) continue;
    const Ns exchange = profile.link.latency + (ranks - 1) * transferTime(profile.link, shared.bytes);
    reduceTime += (shared.sharing == Sharing::Transmit ? 2.0 : 1.0) * static_cast<double>(exchange) + static_cast<double>(ringTime(profile.link, shared.bytes, replicas));
    for (const Stage s : shared.stages) own[s.index()] -= shared.bytes;
  }
  table.reduceTime = nsOf(reduceTime, "summing the gradients of shared parameters");
  for (std::size_t s = 0; s < own.size(); ++s) {
    const auto holders = static_cast<std::int64_t>(ranksOf({Stage(s)}, placement).size()) * replicas;
    table.stages[s].reduce = ringTime(profile.link, std::max<Bytes>(0, own[s]), holders);
    table.stages[s].optimizer = nsOf(std::floor(static_cast<double>(table.stages[s].updatedBytes) * profile.optimizerNsPerByte), "the optimizer step");
  }
}

}  // namespace

CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile, const Placement& placement, int replicas) {
  const Bindings bindings = bindBatch(graph, profile.microbatch);
  const Lifetimes lifetimes(graph, bindings);
  CostTable table;
  for (std::size_t s = 0; s < partition.stages.size(); ++s) {
    const StageSpec& spec = partition.stages[s];
    StageCost stage;
    addState(graph, spec, profile, bindings, stage);
    Bytes received = stage.dataBytes, gradientsIn = 0;
    for (const Transfer& t : partition.transfers) {
      const bool local = placement.rankOfStage.at(t.from.index()) == placement.rankOfStage.at(t.to.index());
      if (t.to == Stage(s) && !local) received += t.bytes;
      if (t.from == Stage(s) && t.gradient) gradientsIn += t.bytes;
    }
    const StageFolder folder(spec, profile, lifetimes, s + 1 == partition.stages.size());
    folder.time(stage);
    folder.memory(stage, received, gradientsIn);
    table.stages.push_back(stage);
  }
  addMessages(partition, profile, placement, table);
  addReductions(partition, profile, placement, replicas, table);
  return table;
}

void addOptimizerState(CostTable& costs, int copies, int shards) {
  for (StageCost& stage : costs.stages) {
    stage.optimizerBytes = copies * stage.updatedBytes / shards;
    stage.optimizer = stage.optimizer * (3 + 2 * copies) / 3 / shards;
  }
}

}  // namespace pw
