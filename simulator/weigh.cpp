#include <algorithm>
#include <map>
#include <span>

#include "simulator/lanes.h"

namespace pw {
namespace {

/// By end (stage and direction): bytes of its messages from other ranks.
std::vector<Bytes> incomingBytes(const Placement& placement, const CostTable& costs) {
  std::vector<Bytes> incoming(2 * costs.stages.size(), 0);
  for (const MessageCost& m : costs.messages) {
    if (placement.rankOfStage[m.from.index()] != placement.rankOfStage[m.to.index()]) incoming[endOf(m.to, m.backward)] += m.bytes;
  }
  return incoming;
}

/// Adds the buffers of receives to a row's uses, and finds its peaks.
void weighRow(const std::vector<Action>& row, std::size_t rank, const std::vector<Bytes>& incoming, bool posted, Lanes& lanes, Program& p) {
  const bool lowered = std::any_of(row.begin(), row.end(), [](const Action& a) { return isReceive(a.kind); });
  const auto first = static_cast<std::size_t>(lanes.begin[rank]);
  const auto steps = std::span(lanes.steps).subspan(first, static_cast<std::size_t>(lanes.begin[rank + 1]) - first);
  std::vector<Bytes> buffers(steps.size() + 1, 0);  // taken (or given back) at the start of each step
  std::size_t step = 0;                             // the first that is no earlier than the action
  for (std::size_t at = 0; at < row.size(); ++at) {
    const Action& action = row[at];
    if (!isReceive(action.kind) && !makesMessage(action.kind)) continue;
    const Bytes bytes = incoming[endOf(action.stage, isBackward(action.kind))];
    if (bytes == 0) continue;
    while (step < steps.size() && steps[step].origin.index < static_cast<std::int32_t>(at)) ++step;
    const bool secondOfSlot = step > 0 && isCompute(action.kind) && (step == steps.size() || steps[step].origin.index > static_cast<std::int32_t>(at));
    const std::size_t user = secondOfSlot ? step - 1 : step;
    std::size_t poster = posted || user == 0 ? user : user - 1;
    while (poster > 0 && !posted && steps[poster].origin.index < 0) --poster;  // a load is no action
    if (isReceive(action.kind) || !lowered) buffers[poster] += bytes;
    if (isCompute(action.kind)) buffers[user] -= bytes;
  }
  std::map<MemoryUse, std::int32_t> known;
  Bytes level = p.atStart[rank], peak = level;
  std::int32_t live = 0, peakLive = 0;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    MemoryUse use = p.uses[static_cast<std::size_t>(steps[i].use)];
    if (buffers[i] != 0) {
      use.gain += buffers[i];
      const auto [found, isNew] = known.emplace(use, static_cast<std::int32_t>(p.uses.size()));
      if (isNew) p.uses.push_back(use);
      steps[i].use = found->second;
    }
    level += use.gain;
    live += use.born;
    peak = std::max(peak, level);
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
    const Bytes bytes = cost.parameterBytes + cost.gradientBytes + cost.optimizerBytes;
    p.atStart[rows.placement.rankOfStage[s].index()] += bytes;
    const bool twice = rows.placement.bidirectional() && rows.placement.mirrorOfStage[s] != rows.placement.rankOfStage[s];
    if (twice) p.atStart[rows.placement.mirrorOfStage[s].index()] += bytes;
  }
  const std::vector<Bytes> incoming = incomingBytes(rows.placement, costs);
  for (std::size_t rank = 0; rank < rows.rows.size(); ++rank) weighRow(rows.rows[rank], rank, incoming, posted, lanes, p);
}

}  // namespace pw
