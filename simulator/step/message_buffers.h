#pragma once

#include "simulator/step/lanes.h"

namespace pw {

/// Adds the buffers of messages to the sources of the uses of the ranks' steps, as described in simulate.h. `posted`: every RECV posts its
/// own receive. Cost: linear in actions.
void addBuffers(const Schedule& rows, const CostTable& costs, bool posted, Lanes& lanes, Program& program);

}  // namespace pw
