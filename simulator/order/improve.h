#pragma once

#include <optional>

#include "simulator/order/find.h"

namespace pw {

/// A schedule made faster from where it is: several annealings (`annealOrder`) of its order, with every backward split, on the problem's
/// costs and limits, of which the best is kept where the simulator finds it faster than the schedule, or it fits where the schedule does
/// not; else the schedule itself. The problem's placement is the schedule's. The same input gives the same result. Throws UsageError for a
/// bidirectional placement and a schedule without backwards.
[[nodiscard]] Schedule improveOrder(const OrderProblem& problem, const Schedule& schedule, const OrderEffort& effort = {});

}  // namespace pw
