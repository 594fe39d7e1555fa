#include "simulator/plan/sharing.h"

#include <algorithm>

#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/step/execute.h"

namespace pw {
namespace {

/// From the end of the last row to the end of the step.
Ns tailOf(const PlanSetting& setting, const Partition& partition) {
  const CostTable costs = costsOf(setting, partition);
  return costs.reduceTime + std::ranges::max(optimizerTimes(setting.schedule.placement, setting.schedule.rows.size(), costs));
}

}  // namespace

std::vector<SharingChoice> chooseSharing(const PlanSetting& setting, Partition& partition, std::optional<Sharing> requested,
                                         const std::vector<Bytes>& limits) {
  const bool limited = std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; });
  const auto fits = [&] { return excessOf(peaksOf(setting, partition), limits) == 0; };
  std::vector<SharingChoice> choices;
  for (SharedParameter& shared : partition.shared) {
    const auto holders = static_cast<int>(holdersOf(shared.stages, setting.schedule.placement).size());
    SharingChoice choice{shared.name, requested.value_or(Sharing::Replicate), holders, 0, 0, 0, 0, false};
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
