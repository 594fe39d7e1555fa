#include "simulator/step/recost.h"

#include <algorithm>
#include <cmath>

#include "simulator/step/lanes.h"

namespace pw {
namespace {

/// Durations of single actions and transfers, computed once for each microbatch size.
class Durations {
 public:
  explicit Durations(const CostTable& costs)
      : costs_(costs), actions_(1 + kComputeKinds * costs.stages.size()), width_(actions_ + costs.messages.size()) {
    std::vector<double> sizes = costs.microbatchScale;
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    for (const double scale : costs.microbatchScale)
      rowOf_.push_back(static_cast<std::size_t>(std::lower_bound(sizes.begin(), sizes.end(), scale) - sizes.begin()) * width_);
    times_.reserve(std::max<std::size_t>(1, sizes.size()) * width_);
    if (sizes.empty()) addRow([](Ns time) { return time; });
    for (const double scale : sizes) {
      addRow([scale](Ns time) { return static_cast<Ns>(std::llround(static_cast<double>(time) * scale)); });
    }
  }
  /// `action` as in UseSource.
  [[nodiscard]] Ns ofAction(std::int32_t action, Microbatch m) const { return times_[row(m) + static_cast<std::size_t>(action)]; }
  [[nodiscard]] Ns ofTransfer(std::int32_t message, Microbatch m) const {
    return times_[row(m) + actions_ + static_cast<std::size_t>(message)];
  }
  [[nodiscard]] Ns scaled(Ns time, Microbatch m) const {
    if (costs_.microbatchScale.empty()) return time;
    return static_cast<Ns>(std::llround(static_cast<double>(time) * costs_.microbatchScale[m.index()]));
  }

 private:
  [[nodiscard]] std::size_t row(Microbatch m) const { return rowOf_.empty() ? 0 : rowOf_[m.index()]; }
  template <class Scale>
  void addRow(Scale scale) {
    times_.push_back(0);
    for (const StageCost& cost : costs_.stages) {
      for (const Ns time : {cost.forward, cost.backward, cost.backwardInput, cost.backwardWeight}) times_.push_back(scale(time));
    }
    for (const MessageCost& m : costs_.messages) times_.push_back(scale(m.transfer));
  }

  const CostTable& costs_;
  std::size_t actions_, width_;
  std::vector<std::size_t> rowOf_;  ///< by microbatch: where its row of `times_` begins
  std::vector<Ns> times_;
};

/// Of a rank's step that has a second action.
Ns slotDuration(const Schedule& rows, const CostTable& costs, const Durations& durations, const UseSource& source, std::int32_t rank,
                const Origin& origin) {
  if (!costs.overlap.empty())
    return durations.scaled(costs.overlap[(static_cast<std::size_t>(source.action) - 1) / kComputeKinds], origin.microbatch);
  const Action& partner = rows.rows[static_cast<std::size_t>(rank)][static_cast<std::size_t>(origin.index) + 1];
  return durations.ofAction(source.action, origin.microbatch) + durations.ofAction(source.partner, partner.microbatch);
}

void setDurations(const Schedule& rows, const CostTable& costs, Program& p) {
  const Durations durations(costs);
  const std::int32_t channels = p.ranks + p.channels, reducers = channels + p.reducers;
  p.duration.resize(p.useOf.size());
  for (std::size_t s = 0; s < p.duration.size(); ++s) {
    const std::int32_t lane = p.steps[s].lane;
    const Origin& origin = p.origin[s];
    Ns duration = 0;  // of barriers and of posted ends of messages
    if (lane < p.ranks) {
      const UseSource& source = p.sources[static_cast<std::size_t>(p.useOf[s])];
      if (source.partner != 0) {
        duration = slotDuration(rows, costs, durations, source, lane, origin);
      } else if (source.action != 0) {
        duration = durations.ofAction(source.action, origin.microbatch);
      }
    } else if (lane < channels) {
      duration = durations.ofTransfer(origin.index, origin.microbatch);
    } else if (lane < reducers) {
      duration =
          costs.stages[rows.rows[static_cast<std::size_t>(lane - channels)][static_cast<std::size_t>(origin.index)].stage.index()].reduce;
    }
    p.duration[s] = duration;
  }
  if (!p.basis.loads && !p.basis.stores) return;
  const auto last = static_cast<std::int32_t>(costs.stages.size()) - 1;
  for (std::int32_t rank = 0; rank < p.ranks; ++rank) {
    const auto steps = p.stepsOf(rank);
    for (std::size_t i = 0; i < steps.size(); ++i) {
      const auto s = static_cast<std::size_t>(steps[i]);
      const Origin& origin = p.origin[s];
      if (origin.index == kStoreStep) p.duration[s] = durations.scaled(costs.store, origin.microbatch);
      if (origin.index != kLoadStep) continue;
      // The next step is the forward that it loads for: the model's input, the target, or both.
      const std::int32_t stage = (p.sources[static_cast<std::size_t>(p.useOf[static_cast<std::size_t>(steps[i + 1])])].action - 1) /
                                 static_cast<std::int32_t>(kComputeKinds);
      p.duration[s] = ((stage == 0 ? 1 : 0) + (stage == last ? 1 : 0)) * durations.scaled(costs.load, origin.microbatch);
    }
  }
}

/// `action`: as in UseSource.
MemoryUse useOfSource(const CostTable& costs, bool trains, std::int32_t action) {
  if (action == 0) return {};
  const auto place = static_cast<std::size_t>(action - 1);
  return useOfAction(costs.stages[place / kComputeKinds], static_cast<ActionKind>(place % kComputeKinds), trains);
}

MemoryUse useOf(const CostTable& costs, const CrossingBytes& crossing, const Program& p, std::size_t i) {
  const UseSource& source = p.sources[i];
  MemoryUse use = useOfSource(costs, p.basis.trains, source.action);
  if (source.partner != 0) {
    const MemoryUse partner = useOfSource(costs, p.basis.trains, source.partner);
    use = {use.gain + partner.gain, use.loss + partner.loss, std::max(use.peak, partner.peak), use.born + partner.born,
           use.died + partner.died};
  }
  Bytes start = 0, end = 0;
  for (std::int32_t b = source.firstBuffer; b < p.sources[i + 1].firstBuffer; ++b) {
    const BufferChange& change = p.buffers[static_cast<std::size_t>(b)];
    switch (change.what) {
      case BufferChange::What::Posted: start += crossing.in[endOf(change.stage, change.backward)]; break;
      case BufferChange::What::Used: start -= crossing.in[endOf(change.stage, change.backward)]; break;
      case BufferChange::What::Kept: end += crossing.out[change.stage.index()]; break;
      case BufferChange::What::Sent: end -= crossing.out[change.stage.index()]; break;
      case BufferChange::What::Held: end += costs.stages[change.stage.index()].sharedForWeight; break;
      case BufferChange::What::Freed: end -= costs.stages[change.stage.index()].sharedForWeight; break;
      case BufferChange::What::Handed: end += costs.messages[static_cast<std::size_t>(change.message)].bytes; break;
      case BufferChange::What::Taken: start -= costs.messages[static_cast<std::size_t>(change.message)].bytes; break;
    }
  }
  use.gain += start;
  use.loss -= end;
  if (start != 0 || end != 0) use.peak = std::max(use.peak, -use.loss);  // what it keeps is allocated before it ends
  return use;
}

void setUses(const Schedule& rows, const CostTable& costs, Program& p) {
  const CrossingBytes crossing(rows.placement, costs);
  p.uses.resize(p.sources.size() - 1);
  for (std::size_t i = 0; i < p.uses.size(); ++i) p.uses[i] = useOf(costs, crossing, p, i);
}

struct Peak {
  Bytes bytes = 0;
  std::int32_t live = 0;
};

/// Along the row of a rank; `useAt(i)` is use i.
template <class UseAt>
Peak peakAlong(const Program& p, Rank rank, Bytes atStart, UseAt useAt) {
  Bytes level = atStart;
  std::int32_t live = 0;
  Peak peak{level, 0};
  for (const std::int32_t step : p.stepsOf(rank.value)) {
    const MemoryUse& use = useAt(static_cast<std::size_t>(p.useOf[static_cast<std::size_t>(step)]));
    level += use.gain;
    live += use.born;
    peak.bytes = std::max(peak.bytes, level + use.peak);
    peak.live = std::max(peak.live, live);
    level -= use.loss;
    live -= use.died;
  }
  return peak;
}

void setPeaks(const Schedule& rows, const CostTable& costs, Program& p) {
  p.atStart.assign(rows.rows.size(), 0);
  p.peakBytes.resize(rows.rows.size());
  p.peakLive.resize(rows.rows.size());
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) {
    p.atStart[rank] = heldThroughout(rows.placement, rows.microbatches, costs, Rank(rank));
    const Peak peak = peakAlong(p, Rank(rank), p.atStart[rank], [&](std::size_t use) -> const MemoryUse& { return p.uses[use]; });
    p.peakBytes[rank] = peak.bytes;
    p.peakLive[rank] = peak.live;
  }
}

/// Whether tables by stage and microbatch match the rows in size; `compile` reports what is wrong.
bool fits(const Schedule& rows, const CostTable& costs) {
  const std::size_t stages = rows.placement.stages();
  return costs.stages.size() == stages && (costs.overlap.empty() || costs.overlap.size() == stages) &&
         (costs.microbatchScale.empty() || costs.microbatchScale.size() == static_cast<std::size_t>(rows.microbatches));
}

/// Whether ends are those of the program; then they lead where they may.
bool sameMessages(const std::vector<Basis::Ends>& ends, const std::vector<MessageCost>& messages) {
  return std::equal(ends.begin(), ends.end(), messages.begin(), messages.end(), [](const Basis::Ends& e, const MessageCost& m) {
    return e.from == m.from && e.to == m.to && e.backward == m.backward;
  });
}

}  // namespace

Basis basisOf(const Schedule& rows, const CostTable& costs, Sending sending, const std::vector<bool>& reduces, bool trains) {
  Basis basis;
  basis.sending = rows.lockstep ? Sending::Overlapped : sending;
  for (const MessageCost& m : costs.messages) basis.messages.push_back({m.from, m.to, m.backward});
  basis.held = channelsOf(rows, costs, basis.sending).held;
  basis.reduces = reduces;
  basis.reductionTakesTime = reduces;
  for (std::size_t s = 0; s < reduces.size(); ++s) basis.reductionTakesTime[s] = reduces[s] && costs.stages[s].reduce != 0;
  basis.trains = trains;
  basis.loads = rows.lockstep && costs.load > 0;
  basis.stores = rows.lockstep && costs.store > 0;
  return basis;
}

CrossingBytes::CrossingBytes(const Placement& placement, const CostTable& costs)
    : in(2 * costs.stages.size(), 0), out(costs.stages.size(), 0) {
  for (const MessageCost& m : costs.messages) {
    if (placement.rankOfStage[m.from.index()] == placement.rankOfStage[m.to.index()]) continue;
    in[endOf(m.to, m.backward)] += m.bytes;
    if (m.backward) out[m.from.index()] += m.bytes;
  }
}

MemoryUse useOfAction(const StageCost& cost, ActionKind kind, bool trains) {
  const Bytes kept = cost.activationBytes, freed = kept - heldForWeight(cost);
  switch (kind) {
    case ActionKind::Forward: return {kept, trains ? 0 : kept, std::max<Bytes>(0, cost.forwardPeak - kept), 1, trains ? 0 : 1};
    case ActionKind::Backward: return {0, kept, cost.backwardPeak, 0, 1};
    case ActionKind::BackwardInput: return {0, freed, std::max(cost.inputPeak, -freed), 0, 0};
    case ActionKind::BackwardWeight: return {0, kept - freed, cost.weightPeak, 0, 1};
    case ActionKind::SendForward:
    case ActionKind::RecvForward:
    case ActionKind::SendBackward:
    case ActionKind::RecvBackward:
    case ActionKind::ReduceGrad:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::Idle: return {};
  }
  return {};
}

Bytes heldThroughout(const Placement& placement, int microbatches, const CostTable& costs, Rank rank) {
  Bytes sum = 0;
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& cost = costs.stages[s];
    if (placement.holds(rank, Stage(s)))
      sum += cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes + cost.fixedBytes + cost.dataBytes * microbatches;
  }
  return sum;
}

Bytes peakOf(const Schedule& rows, const CostTable& costs, const CrossingBytes& crossing, const Program& program, Rank rank) {
  std::vector<std::int32_t> madeAt(program.sources.size(), -1);
  std::vector<MemoryUse> made;
  const auto useAt = [&](std::size_t use) -> const MemoryUse& {
    if (madeAt[use] < 0) {
      madeAt[use] = static_cast<std::int32_t>(made.size());
      made.push_back(useOf(costs, crossing, program, use));
    }
    return made[static_cast<std::size_t>(madeAt[use])];
  };
  return peakAlong(program, rank, heldThroughout(rows.placement, rows.microbatches, costs, rank), useAt).bytes;
}

void setTimes(const Schedule& rows, const CostTable& costs, Program& program) {
  setDurations(rows, costs, program);
  program.delays.assign(1, 0);
  for (const MessageCost& m : costs.messages) program.delays.push_back(m.latency);
}

void setCosts(const Schedule& rows, const CostTable& costs, Program& program) {
  setTimes(rows, costs, program);
  setUses(rows, costs, program);
  setPeaks(rows, costs, program);
}

bool sameStructure(const Schedule& rows, const CostTable& costs, Sending sending, const Program& program) {
  if (!fits(rows, costs) || rows.rows.size() != static_cast<std::size_t>(program.ranks) ||
      !sameMessages(program.basis.messages, costs.messages))
    return false;
  return basisOf(rows, costs, sending, program.basis.reduces, program.basis.trains) == program.basis;
}

bool recost(const Schedule& rows, const CostTable& costs, Sending sending, Program& program) {
  if (!sameStructure(rows, costs, sending, program)) return false;
  setCosts(rows, costs, program);
  return true;
}

}  // namespace pw
