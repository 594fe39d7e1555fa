#pragma once

#include <vector>

#include "simulator/order/find.h"
#include "simulator/report/sensitivity.h"

namespace pw {

/// By re-simulation: orders found anew (`findOrder`) where the limits are larger and smaller by `change` (live limits by at least one
/// pair), of all ranks together and, if there are several, of each rank alone. More for all ranks is never slower than more for one, nor
/// less for one than less for all. `now`: the time of an order for the problem as it is. A limit has no derivative: an order of other
/// microbatches either fits or it does not. Empty without limits. Cost: two searches of a quarter of the effort for each. Throws as
/// `findOrder`, and UsageError for a change that is not between 0 and 1.
[[nodiscard]] std::vector<LimitSensitivity> limitSensitivity(const OrderProblem& problem, Ns now, double change,
                                                             const OrderEffort& effort = {});

}  // namespace pw
