#pragma once

#include "simulator/order/order_model.h"

namespace pw {

/// Models of more actions are not looked at: some seconds of work.
inline constexpr std::size_t kMostWindowActions = 3000;

/// A time between `lower`, which must be a bound itself, and `upper` that no order of the model takes less than, on its clock: `upper`
/// where none is faster. Destructive (Klein and Scholl, Computing optimally by destructive lower bounds, European Journal of Operational
/// Research 112, 1999): a time is tried by the window that it leaves each action, between its earliest start and its latest end; where a
/// window is too short, every order takes longer. Windows are narrowed, until nothing changes,
/// - along messages, and along the microbatches of a class, which can be taken in their order;
/// - by room: the m-th F of a stage waits for as many I and W of its rank as must have ended for it to fit, with all others ended that can
///   have been; and what a rank surely holds leaves no room for more (time table filtering, as in Baptiste, Le Pape, Nuijten,
///   Constraint-based scheduling, 2001);
/// - by what precedes an action on its rank, in whatever order;
/// - by the rank's capacity: edge finding and detectable precedences (Vilím, Barták, Čepek, 2005), in both directions of time.
/// Transfers do not hold their channels here, and working memory of backwards is not counted. Microbatches of different scale count as the
/// smallest. Exact to 0.02 % of `upper`. Larger models: `lower`. Cost: for each of some ten times, and each of some ten passes over all
/// windows, O(actions · log(actions of a rank)) for each class of a rank, and where room is limited O(actions · actions of a rank).
[[nodiscard]] Ns windowBound(const OrderModel& model, Ns lower, Ns upper);

}  // namespace pw
