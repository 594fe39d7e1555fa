#pragma once

#include <cstdint>
#include <vector>

#include "simulator/order/problem/problem.h"

namespace pw {

/// What a stage costs that runs its forward again before its backward: that takes the time of a forward more, only `kept` bytes are kept
/// until then, and from the start of I (or B) it holds what it would hold without.
[[nodiscard]] StageCost recomputedCost(const StageCost& cost, Bytes kept);

/// The costs where these stages, by index, recompute.
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
