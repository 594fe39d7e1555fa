#pragma once

#include "simulator/order/proof/windows.h"

namespace pw {

/// Narrows the windows of a rank by the room that its limits leave, in two ways. False: what they leave is too little.
/// - What the rank surely holds at a time, as F ends before and W after it, or an action surely runs that needs more meanwhile, leaves no
///   room for more (time table filtering, as in Baptiste, Le Pape, Nuijten, Constraint-based scheduling, 2001).
/// - What it holds at least when an F starts, or an I or W that needs more meanwhile: of each pair whose F surely comes before, what no I
///   or W that may come before has freed. An I or W without which that is too much comes before, and an F with which it is comes after
///   (balance constraint, as in Laborie, Algorithms for propagating resource constraints in AI planning and scheduling, Artificial
///   Intelligence 143, 2003).
/// Cost: O(actions of the rank, squared).
[[nodiscard]] bool keepRoom(Windows& windows, Rank rank);

}  // namespace pw
