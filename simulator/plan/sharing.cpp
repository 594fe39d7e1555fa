#include "simulator/plan/sharing.h"

#include <algorithm>
#include <utility>

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

/// Saves the optimizer's state of copies, those that cost the least time first, until all ranks fit; then keeps what turns out not to be
/// needed. Nothing is changed where all of them do not fit.
template <class Fits>
void transmitToFit(Partition& partition, std::vector<SharingChoice>& choices, const Fits& fits) {
  std::vector<std::pair<Ns, std::size_t>> copied;
  for (std::size_t i = 0; i < choices.size(); ++i) {
    if (choices[i].ranks > 1 && choices[i].sharing == Sharing::Replicate)
      copied.emplace_back(choices[i].transmitTime - choices[i].replicateTime, i);
  }
  std::ranges::sort(copied);
  bool fit = false;
  std::size_t tried = 0;
  for (; tried < copied.size() && !fit; ++tried) {
    partition.shared[copied[tried].second].sharing = Sharing::Transmit;
    fit = fits();
  }
  while (tried-- > 0) {
    const std::size_t i = copied[tried].second;
    partition.shared[i].sharing = Sharing::Replicate;
    if (!fit || fits()) continue;
    partition.shared[i].sharing = choices[i].sharing = Sharing::Transmit;
    choices[i].forMemory = true;
  }
}

}  // namespace

std::vector<SharingChoice> chooseSharing(const PlanSetting& setting, Partition& partition, std::optional<Sharing> requested,
                                         const std::vector<Bytes>& limits) {
  std::vector<SharingChoice> choices;
  for (SharedParameter& shared : partition.shared) {
    const auto holders = static_cast<int>(holdersOf(shared.stages, setting.schedule.placement).size());
    SharingChoice choice{shared.name, requested.value_or(Sharing::Replicate), holders, 0, 0, 0, 0, false};
    if (choice.ranks > 1) {
      choice.replicateBytes = shared.bytes * choice.ranks * (choice.ranks - 1);
      choice.transmitBytes = shared.bytes * 2 * (choice.ranks - 1);
      shared.sharing = Sharing::Replicate;
      choice.replicateTime = tailOf(setting, partition);
      shared.sharing = Sharing::Transmit;
      choice.transmitTime = tailOf(setting, partition);
      const bool cheaper = std::pair(choice.transmitTime, choice.transmitBytes) < std::pair(choice.replicateTime, choice.replicateBytes);
      if (!requested && cheaper) choice.sharing = Sharing::Transmit;
    } else {
      choice.sharing = Sharing::Replicate;
    }
    shared.sharing = choice.sharing;
    choices.push_back(choice);
  }
  const bool limited = std::ranges::any_of(limits, [](Bytes limit) { return limit > 0; });
  const auto fits = [&] { return excessOf(peaksOf(setting, partition), limits) == 0; };
  const bool isOpen = !requested && std::ranges::any_of(choices, [](const SharingChoice& c) { return c.ranks > 1; });
  if (limited && isOpen && !fits()) transmitToFit(partition, choices, fits);
  return choices;
}

}  // namespace pw
