#pragma once

#include <optional>
#include <vector>

#include "schedules/answer.h"
#include "schedules/schedule.h"
#include "simulator/order/problem/problem.h"

namespace pw {

/// Why no order of so many stages and microbatches is searched: they are too many. Nothing where one is.
[[nodiscard]] std::optional<Impossible> tooManyForOrder(std::size_t stages, int microbatches);

/// One microbatch after the other through all stages and back, with split backwards. Throws UsageError for a shape too large to search.
[[nodiscard]] Schedule serialSchedule(const Placement& placement, int ranks, int microbatches);

/// The same where each rank has those of its backwards whole, and its W so late, that it needs the least. Without messages' buffers no
/// order needs less with these costs: whatever else a rank holds meanwhile, one of its microbatches passes all its stages, and for a given
/// limit a rank does best to leave nothing behind: W as soon as it fits, a whole backward where one fits. With buffers, where order decides
/// what is posted when, that is the least of this, all whole and all split. Cost: as compiling, three times.
[[nodiscard]] Schedule smallestSchedule(const Placement& placement, int ranks, int microbatches, const CostTable& costs);

/// Which stages recompute where each rank needs the least for one microbatch at a time. Where recomputing needs less at every action, all
/// that may; of the others all choices of a rank where they are few (10).
[[nodiscard]] std::vector<bool> smallestRecomputation(const OrderProblem& problem);

/// The first rank whose limit does not even hold one microbatch of its stages, whichever of them recompute and whichever backwards are
/// whole, and what it needs.
struct TooSmall {
  Rank rank;
  Bytes bytes = 0;  ///< it needs; 0: enough, but too few live pairs
  int live = 0;     ///< pairs it needs
};
[[nodiscard]] std::optional<TooSmall> tooSmall(const OrderProblem& problem);

}  // namespace pw
