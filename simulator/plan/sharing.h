#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulator/plan/checkpoint.h"

namespace pw {

/// How a shared parameter is kept equal, and why.
struct SharingChoice {
  std::string name;
  Sharing sharing = Sharing::Replicate;
  int ranks = 1;                                ///< of a pipeline that hold it; one: nothing is sent
  Ns replicateTime = 0, transmitTime = 0;       ///< of the end of the step: reductions, and the optimizer of the slowest rank
  Bytes replicateBytes = 0, transmitBytes = 0;  ///< over all links in a step: k (k − 1) · n, or 2 (k − 1) · n
  bool forMemory = false;                       ///< taken because the other does not fit

  bool operator==(const SharingChoice&) const = default;
};

/// Sets `Partition::shared[…].sharing`, one parameter after the other: the asked-for one; or, without one, Transmit where the end of the
/// step is then shorter, or as long with fewer bytes over the links, or, with `limit` > 0, where only so all ranks fit. Transmit brings the
/// gradients to the owner and the values back, one after the other, and saves the others the optimizer's time and state. Parameters that
/// one rank alone holds stay Replicate. Cost: two foldings of the costs (with a limit, compilations) for each parameter.
[[nodiscard]] std::vector<SharingChoice> chooseSharing(const PlanSetting& setting, Partition& partition, std::optional<Sharing> asked,
                                                       Bytes limit);

/// `replicate`, `transmit`.
[[nodiscard]] std::string_view name(Sharing sharing);

}  // namespace pw
