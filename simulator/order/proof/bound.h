#pragma once

#include "simulator/order/problem/model.h"

namespace pw {

/// Models of more actions are not examined: some seconds of work.
inline constexpr std::size_t kMostWindowActions = 3000;

/// A time between `lower`, which must be a bound itself, and `upper` that no order of the model takes less than, on its clock: `upper`
/// where none is faster. Destructive (Klein and Scholl, Computing optimally by destructive lower bounds, European Journal of Operational
/// Research 112, 1999): a time is tried by the window that it leaves each action (`Windows`); where a window is too short, every order
/// takes longer. Exact to 0.02 % of `upper`. Larger models: `lower`. Cost: `Windows::hold` for each of some ten times.
[[nodiscard]] Ns windowBound(const OrderModel& model, Ns lower, Ns upper);

}  // namespace pw
