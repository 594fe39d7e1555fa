#pragma once

#include <optional>

#include "schedules/answer.h"
#include "simulator/order/find.h"
#include "simulator/partition/model_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/report/sensitivity.h"

namespace pw {

/// An order made for the costs of a plan.
struct MadeOrder {
  Schedule rows;  ///< of `planRows`, called as the request's
  Priced priced;  ///< with these rows
  std::optional<Certificate>
      certificate;  ///< of their flush: sums of gradients and the optimizer come after it. Nothing where no order fits
  Ns step = 0;      ///< with these

  bool operator==(const MadeOrder&) const = default;
};

/// Searches an order (`findOrder`) for the partition, costs and memory limit of `request`, and the room of its schedule where that is one
/// of `kMadeSchedules`: on a loop, and with two stages a rank also on a V, whichever has the shorter step; never one longer than that of a
/// family that fits, where its schedule has no room of its own. With RecomputeAuto both without recomputation and with what the serial
/// order and 1F1B need to fit; stages that cannot be recomputed never are. Where nothing fits: one microbatch after the other, which needs
/// the least memory. `stages` is a multiple of `request.ranks`. `price` with the result's rows gives the result's costs. The same input
/// gives the same result, unless `effort.shouldContinue` ended it. Throws as `price` and `findOrder`.
[[nodiscard]] MadeOrder makeOrder(const PlanRequest& request, ModelCosts& model, int stages, const OrderEffort& effort = {});

/// Why `makeOrder` and `orderBound` do not work for these splits and this recomputation: they are not possible (`tryPrice`), or there is
/// too much to search. Nothing where they do. Cost: as `price`, a few times.
[[nodiscard]] std::optional<Impossible> obstacleToOrder(const PlanRequest& request, ModelCosts& model, int stages);

/// A compute-only schedule made faster from where it is (`improveOrder`), for the partition, costs and memory limit of `request`, whose
/// rank order it has already; else the schedule itself. Throws as `price` and `improveOrder`.
[[nodiscard]] Schedule improvedSchedule(const PlanRequest& request, ModelCosts& model, const Schedule& schedule,
                                        const OrderEffort& effort = {});

/// No order of this partition, loop or V, ends earlier, whatever of the request is left open: `orderBound` on the request's costs and
/// limits; with RecomputeAuto on times as without recomputation and memory as with all of it, and with no more of the optimizer's state
/// than any way of sharing parameters needs. Cost: as `price`, and linear in actions. Throws as `price`.
[[nodiscard]] Ns orderBound(const PlanRequest& request, ModelCosts& model, int stages);

/// How much the makespan of these rows (of `rowsFor`) depends on the request's memory limit: its schedule made anew, and with RecomputeAuto
/// what is recomputed, with a limit larger and smaller by `change`; the same splits. Nothing without a limit in the request. Cost: as two
/// plans. Throws as `makeOrder`.
[[nodiscard]] std::optional<LimitSensitivity> limitSensitivity(const PlanRequest& request, ModelCosts& model, const Schedule& rows,
                                                               double change, const OrderEffort& effort = {});

/// The rows of a plan of so many stages with the schedule that the request names; those of `auto` by `makeOrder`.
[[nodiscard]] Schedule rowsFor(const PlanRequest& request, ModelCosts& model, int stages, const OrderEffort& effort = {});

}  // namespace pw
