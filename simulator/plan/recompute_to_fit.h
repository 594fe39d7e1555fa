#pragma once

#include <vector>

#include "simulator/plan/setting.h"

namespace pw {

/// Recomputes whole stages until no rank needs more than its limit (0: none): as long as one does, of the first such rank's stages the one
/// that saves most for each ns of its forward (ties: the lower stage); stages with an obstacle stay. Starts from the partition without
/// checkpoints. Returns whether all ranks fit. Cost: a compilation of the schedule, and a pass over its ranks' rows for each stage taken.
[[nodiscard]] bool recomputeToFit(const PlanSetting& setting, Partition& partition, const std::vector<Bytes>& limits);

}  // namespace pw
