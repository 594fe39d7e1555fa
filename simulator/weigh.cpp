#include <algorithm>
#include <map>
#include <span>

#include "simulator/lanes.h"

namespace pw {
namespace {

/// Bytes of a stage's messages from and to other ranks.
struct Crossing {
  std::vector<Bytes> in;   ///< by end (stage and direction)
  std::vector<Bytes> out;  ///< by stage: gradients; values for others count as activations

  Crossing(const Placement& placement, const CostTable& costs) : in(2 * costs.stages.size(), 0), out(costs.stages.size(), 0) {
    for (const MessageCost& m : costs.messages) {
      if (placement.rankOfStage[m.from.index()] == placement.rankOfStage[m.to.index()]) continue;
      in[endOf(m.to, m.backward)] += m.bytes;
      if (m.backward) out[m.from.index()] += m.bytes;
    }
  }
};

/// What messages take (or give back) at the start and at the end of each step of a rank's row.
struct Buffers {
  std::vector<Bytes> start, end;
};

/// A gradient on its way to another rank stays until the compute action after its own has ended; there is none behind the last.
void keepUntilSent(const std::vector<Action>& row, std::span<const Lanes::Draft> steps, std::size_t maker, Bytes bytes, Buffers& buffers) {
  for (std::size_t next = maker + 1; next < steps.size(); ++next) {
    if (steps[next].origin.index < 0 || !isCompute(row[static_cast<std::size_t>(steps[next].origin.index)].kind)) continue;
    buffers.end[maker] += bytes;
    buffers.end[next] -= bytes;
    return;
  }
}

Buffers buffersOf(const std::vector<Action>& row, std::span<const Lanes::Draft> steps, const Crossing& crossing, bool posted) {
  const bool lowered = std::any_of(row.begin(), row.end(), [](const Action& a) { return isReceive(a.kind); });
  Buffers buffers{std::vector<Bytes>(steps.size() + 1, 0), std::vector<Bytes>(steps.size() + 1, 0)};
  std::size_t step = 0;  // the first that is no earlier than the action
  for (std::size_t at = 0; at < row.size(); ++at) {
    const Action& action = row[at];
    if (!isReceive(action.kind) && !makesMessage(action.kind)) continue;
    const bool backward = isBackward(action.kind);
    const Bytes bytes = crossing.in[endOf(action.stage, backward)];
    const Bytes sent = backward && isCompute(action.kind) ? crossing.out[action.stage.index()] : 0;
    if (bytes == 0 && sent == 0) continue;
    while (step < steps.size() && steps[step].origin.index < static_cast<std::int32_t>(at)) ++step;
    const bool secondOfSlot = step > 0 && isCompute(action.kind) && (step == steps.size() || steps[step].origin.index > static_cast<std::int32_t>(at));
    const std::size_t user = secondOfSlot ? step - 1 : step;
    std::size_t poster = posted || user == 0 ? user : user - 1;
    while (poster > 0 && !posted && steps[poster].origin.index < 0) --poster;  // a load is no action
    if (isReceive(action.kind) || !lowered) buffers.start[poster] += bytes;
    if (isCompute(action.kind)) buffers.start[user] -= bytes;
    if (sent > 0) keepUntilSent(row, steps, user, sent, buffers);
  }
  return buffers;
}

/// Adds the buffers of messages to the uses of a row's steps, and finds its peaks.
void weighRow(const std::vector<Action>& row, std::size_t rank, const Crossing& crossing, bool posted, Lanes& lanes, Program& p) {
  const auto first = static_cast<std::size_t>(lanes.begin[rank]);
  const auto steps = std::span(lanes.steps).subspan(first, static_cast<std::size_t>(lanes.begin[rank + 1]) - first);
  const Buffers buffers = buffersOf(row, steps, crossing, posted);
  std::map<MemoryUse, std::int32_t> known;
  Bytes level = p.atStart[rank], peak = level;
  std::int32_t live = 0, peakLive = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    MemoryUse use = p.uses[static_cast<std::size_t>(steps[i].use)];
    if (buffers.start[i] != 0 || buffers.end[i] != 0) {
      use.gain += buffers.start[i];
      use.loss -= buffers.end[i];
      use.peak = std::max(use.peak, -use.loss);  // what it leaves is there before it ends
      const auto [found, isNew] = known.emplace(use, static_cast<std::int32_t>(p.uses.size()));
      if (isNew) p.uses.push_back(use);
      steps[i].use = found->second;
    }
    level += use.gain;
    live += use.born;
    peak = std::max(peak, level + use.peak);
    peakLive = std::max(peakLive, live);
    level -= use.loss;
    live -= use.died;
  }
  p.peakBytes.push_back(peak);
  p.peakLive.push_back(peakLive);
}

}  // namespace

void weigh(const Schedule& rows, const CostTable& costs, bool posted, Lanes& lanes, Program& p) {
  p.atStart.assign(rows.rows.size(), 0);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& cost = costs.stages[s];
    const Bytes bytes = cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes + cost.fixedBytes + cost.dataBytes * rows.microbatches;
    p.atStart[rows.placement.rankOfStage[s].index()] += bytes;
    const bool twice = rows.placement.bidirectional() && rows.placement.mirrorOfStage[s] != rows.placement.rankOfStage[s];
    if (twice) p.atStart[rows.placement.mirrorOfStage[s].index()] += bytes;
  }
  const Crossing crossing(rows.placement, costs);
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) weighRow(rows.rows[rank], rank, crossing, posted, lanes, p);
}

}  // namespace pw
