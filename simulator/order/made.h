#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "simulator/order/find.h"

namespace pw {

/// Where an order of a shape is searched: on a loop, and with two stages a rank on a V, too.
[[nodiscard]] std::vector<Placement> orderPlacements(const Shape& shape);

struct SoughtOrder {
  OrderProblem problem;  ///< within the schedule's own room
  std::optional<FoundOrder> found;
};

/// The order of a schedule of `kMadeSchedules` (`findOrder`, `limitRoom`), named after it.
[[nodiscard]] SoughtOrder seekOrder(const MadeSchedule& made, OrderProblem problem, const OrderEffort& effort);

/// The fastest of the orders on `orderPlacements`, each searched with the whole effort; those with a room of their own on the window clock,
/// as their paper has it. Of equal ones that on the earlier placement; where no order is found on any, the first placement's problem.
/// `problemOn` is asked once for each placement.
[[nodiscard]] SoughtOrder seekOrder(const MadeSchedule& made, const Shape& shape,
                                    const std::function<OrderProblem(const Placement&)>& problemOn, const OrderEffort& effort);

}  // namespace pw
