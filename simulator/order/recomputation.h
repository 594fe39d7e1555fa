#pragma once

#include <vector>

#include "simulator/order/order_problem.h"

namespace pw {

/// The costs where these stages run their forward again before their backward: that takes the time of a forward more, what they keep until
/// then is `ifRecomputed`, and from the start of I (or B) they hold what they would hold without.
[[nodiscard]] CostTable withRecomputation(const OrderProblem& problem, const std::vector<bool>& recomputed);

/// Costs that every order exceeds, whatever it recomputes and whichever of its backwards are whole: each action takes no longer, and each
/// pair holds no more. A whole backward is at least as long as these I and W together; recomputing costs nothing.
[[nodiscard]] CostTable relaxedCosts(const OrderProblem& problem);

}  // namespace pw
