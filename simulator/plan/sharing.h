#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulator/plan/setting.h"

namespace pw {

/// How the copies of a shared parameter are kept equal, and why.
struct SharingChoice {
  std::string name;
  Sharing sharing = Sharing::Replicate;
  int ranks = 1;                                ///< of a pipeline that hold it; one: nothing is sent
  Ns replicateTime = 0, transmitTime = 0;       ///< of the end of the step: reductions, and the optimizer of the slowest rank
  Bytes replicateBytes = 0, transmitBytes = 0;  ///< over all links in a step: k (k − 1) · n, or 2 (k − 1) · n
  bool forMemory = false;                       ///< chosen because the other does not fit

  bool operator==(const SharingChoice&) const = default;
};

/// Sets `Partition::shared[…].sharing`, one parameter after the other: the requested one; or, if none is requested, Transmit if it makes
/// the end of the step shorter, or is as fast with fewer bytes over the links; and, with `limits`, for those that all ranks fit only with.
/// Transmit brings the gradients to the owner and the values back, one after the other, and saves the others the optimizer's time and
/// state. Parameters that one rank alone holds stay Replicate. Cost: two foldings of the costs (with limits, compilations) for each
/// parameter.
[[nodiscard]] std::vector<SharingChoice> chooseSharing(const PlanSetting& setting, Partition& partition, std::optional<Sharing> requested,
                                                       const std::vector<Bytes>& limits);

}  // namespace pw
