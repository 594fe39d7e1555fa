#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "simulator/order/problem/found.h"
#include "simulator/order/problem/least_memory.h"
#include "simulator/order/problem/made_schedules.h"
#include "simulator/order/problem/problem.h"

namespace pw {

inline constexpr int kOrderThreads = 2;  ///< as many as can share the work of one order

struct OrderEffort {
  double seconds = 2;  ///< about so long on one core of a shared server; counted in work, so that the same input gives the same order
  std::uint64_t seed = 1;
  int threads = 1;                                        ///< that share the work; any number gives the same order
  std::function<bool(double share)> shouldContinue = {};  ///< polled between improvements, with the share of work done; false: the best so
                                                          ///< far. One call at a time, from any of the threads
};

/// Searches an order of forwards and split backwards: starts from all families of that placement and from greedy orders with several paces
/// (`GreedyOrder`), tunes the best (`tuneOrder`), anneals from several of them (`annealOrder`), polishes those of small problems
/// (`polishOrder`), and spends the last part of the work on the bound (`proveOrder`), which may find better ones, too; of a large problem
/// whose bound stays far off, most of that part on more annealing. Stops where the bound is reached. Where stages may recompute, it first
/// chooses which do: of few all choices, those first that may take least, then the best few of these for longer. Never slower than a family
/// of the same placement that fits without recomputation. Where a whole backward takes less than its parts, they are joined if that is
/// faster. The same problem, seconds and seed give the same order. Nothing where the limits do not hold one microbatch at a time on some
/// rank (`tooSmall`). Throws UsageError for a bidirectional placement, slots with a duration of their own, and what `lowerBounds` refuses.
[[nodiscard]] std::optional<FoundOrder> findOrder(const OrderProblem& problem, const OrderEffort& effort = {});

/// No order of forwards and backwards on that placement, whole or split, with whatever recomputed, takes less on the problem's clock, as
/// long as the microbatches of a stage come in their order: on the window clock, a rank that took a later one first could begin late on
/// purpose.
[[nodiscard]] Ns orderBound(const OrderProblem& problem);
/// The same, closer (`windowBound`) where that takes at most a quarter of so much work, and an order is known that takes `found`.
[[nodiscard]] Ns orderBound(const OrderProblem& problem, Ns found, double seconds);

}  // namespace pw
