#pragma once

#include <vector>

#include "simulator/order/problem/problem.h"

namespace pw {

/// A schedule as the simulator sees it, which counts buffers that an OrderModel leaves out.
struct JudgedOrder {
  Ns time = 0;
  std::vector<Bytes> excess;  ///< by rank: bytes above its limit
  bool fits = true;
};
/// Simulates the schedule with these costs, on the clock and against the limits of the problem. Throws as `compile`. Cost: linear in
/// actions and messages.
[[nodiscard]] JudgedOrder judgeOrder(const OrderProblem& problem, const CostTable& costs, const Schedule& schedule);

}  // namespace pw
