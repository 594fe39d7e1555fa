#pragma once

#include <vector>

#include "simulator/plan/setting.h"

namespace pw {

/// Recomputes whole stages until no rank needs more than its limit (0: none), rank by rank: of a rank that does, the stages whose
/// forwards together take least time (ties: fewer) of all choices among up to four stages; of more, stage by stage the one that saves most
/// for each ns of its forward, then without those that are not needed beside the others. Stages with an obstacle stay. A rank that all of
/// its stages do not bring under its limit recomputes them all, and the next is looked at. Starts from the partition without checkpoints.
/// Returns whether all ranks fit. Cost: a compilation of the schedule, and up to 16 passes over each row.
[[nodiscard]] bool recomputeToFit(const PlanSetting& setting, Partition& partition, const std::vector<Bytes>& limits);

}  // namespace pw
