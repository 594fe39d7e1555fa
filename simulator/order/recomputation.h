#pragma once

#include <cstdint>
#include <vector>

#include "simulator/order/order_problem.h"

namespace pw {

/// The costs where these stages run their forward again before their backward: that takes the time of a forward more, what they keep until
/// then is `ifRecomputed`, and from the start of I (or B) they hold what they would hold without.
[[nodiscard]] CostTable withRecomputation(const OrderProblem& problem, const std::vector<bool>& recomputed);

/// Whether a stage runs its forward again, where that may be open.
enum class Recomputed : std::uint8_t { Open, No, Yes };

/// Of all stages: open where it may save memory.
[[nodiscard]] std::vector<Recomputed> openChoice(const OrderProblem& problem);

/// Costs that every order with this choice exceeds, whichever of its backwards are whole: each action takes no longer, and each pair holds
/// no more. A whole backward is at least as long as these I and W together; where it is open whether a stage recomputes, that costs
/// nothing.
[[nodiscard]] CostTable relaxedCosts(const OrderProblem& problem, const std::vector<Recomputed>& choice);

}  // namespace pw
