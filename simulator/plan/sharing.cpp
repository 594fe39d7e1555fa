#include "simulator/plan/sharing.h"
#include "simulator/plan/excess.h"

#include <algorithm>
#include <set>

namespace pw {
namespace {

/// From the end of the last row to the end of the step.
Ns tailOf(const PlanSetting& setting, const Partition& partition) {
  const CostTable costs = costsOf(setting, partition);
  const Placement& placement = setting.schedule.placement;
  std::vector<Ns> optimizer(setting.schedule.rows.size(), 0);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    for (std::size_t r = 0; r < optimizer.size(); ++r) optimizer[r] += placement.holds(Rank(r), Stage(s)) ? costs.stages[s].optimizer : 0;
  }
  return costs.reduceTime + *std::max_element(optimizer.begin(), optimizer.end());
}

int holdersOf(const SharedParameter& shared, const Placement& placement) {
  std::set<Rank> ranks;
  for (const Stage s : shared.stages) {
    ranks.insert(placement.rankOfStage.at(s.index()));
    if (placement.bidirectional()) ranks.insert(placement.mirrorOfStage.at(s.index()));
  }
  return static_cast<int>(ranks.size());
}

}  // namespace

std::vector<SharingChoice> chooseSharing(const PlanSetting& setting, Partition& partition, std::optional<Sharing> requested,
                                         const std::vector<Bytes>& limits) {
  const bool limited = std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; });
  const auto fits = [&] { return excessOf(peaksOf(setting, partition), limits) == 0; };
  std::vector<SharingChoice> choices;
  for (SharedParameter& shared : partition.shared) {
    SharingChoice choice{shared.name, requested.value_or(Sharing::Replicate), holdersOf(shared, setting.schedule.placement), 0, 0, 0, 0,
                         false};
    if (choice.ranks > 1) {
      choice.replicateBytes = shared.bytes * choice.ranks * (choice.ranks - 1);
      choice.transmitBytes = shared.bytes * 2 * (choice.ranks - 1);
      shared.sharing = Sharing::Replicate;
      choice.replicateTime = tailOf(setting, partition);
      const bool replicateFits = !limited || fits();
      shared.sharing = Sharing::Transmit;
      choice.transmitTime = tailOf(setting, partition);
      choice.forMemory = !requested && !replicateFits && fits();
      const bool cheaper = std::pair(choice.transmitTime, choice.transmitBytes) < std::pair(choice.replicateTime, choice.replicateBytes);
      if (!requested && (cheaper || choice.forMemory)) choice.sharing = Sharing::Transmit;
    } else {
      choice.sharing = Sharing::Replicate;
    }
    shared.sharing = choice.sharing;
    choices.push_back(choice);
  }
  return choices;
}

}  // namespace pw
