#pragma once

#include "simulator/step/lanes.h"

namespace pw {

/// Adds message buffers to the memory that each rank's steps use (`Program::sources` and `Program::buffers`): which step allocates the
/// buffer of a received value or a sent gradient, and which frees it, by the rules of `simulate`. `posted`: a receive is posted by its own
/// RECV instead of the compute action before. `lanes`: the steps of the ranks, whose uses are replaced. Cost: linear in actions.
void addBuffers(const Schedule& rows, const CostTable& costs, bool posted, Lanes& lanes, Program& program);

}  // namespace pw
