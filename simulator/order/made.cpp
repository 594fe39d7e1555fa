#include "simulator/order/made.h"

#include <utility>

#include "schedules/placement.h"

namespace pw {

std::vector<Placement> orderPlacements(const Shape& shape) {
  std::vector<Placement> placements{loopPlacement(shape)};
  if (shape.stages == 2 * shape.ranks && shape.ranks > 1) placements.push_back(wavePlacement(shape));
  return placements;
}

SoughtOrder seekOrder(const MadeSchedule& made, OrderProblem problem, const OrderEffort& effort) {
  limitRoom(problem, made);
  std::optional<FoundOrder> found = findOrder(problem, effort);
  if (found) found->schedule.name = made.name;
  return {std::move(problem), std::move(found)};
}

SoughtOrder seekOrder(const MadeSchedule& made, const Shape& shape, const std::function<OrderProblem(const Placement&)>& problemOn,
                      const OrderEffort& effort) {
  std::optional<SoughtOrder> best;
  for (const Placement& placement : orderPlacements(shape)) {
    OrderProblem problem = problemOn(placement);
    if (made.room > 0) problem.clock = StepClock::Window;
    SoughtOrder sought = seekOrder(made, std::move(problem), effort);
    const bool isFaster = best && sought.found && (!best->found || sought.found->certificate.time < best->found->certificate.time);
    if (!best || isFaster) best = std::move(sought);
  }
  return *std::move(best);
}

}  // namespace pw
