#pragma once

// Internal to the search for orders: what it costs.

#include <algorithm>
#include <cstdint>

#include "simulator/order/problem/model.h"

namespace pw {

/// Work of a search, as the nanoseconds that a fast core of 2020 needs for it: counted, not measured, so that the same input gives the same
/// order. A type of its own, so that it is not taken for the time of an order.
using OrderWork = Quantity<struct OrderWorkTag>;

/// What fits into so many seconds on one core of a shared server.
[[nodiscard]] constexpr OrderWork workOf(double seconds) { return OrderWork(seconds * 5.3e8); }

/// Whether branch and bound is likely to end.
[[nodiscard]] inline bool isSmall(const OrderModel& model) { return model.actions() <= 250; }

/// Of timing one set of rows.
[[nodiscard]] inline OrderWork workOfTrial(const OrderModel& model) {
  return OrderWork(225 + 5 * static_cast<std::int64_t>(model.actions()));
}

/// Of one move that annealing tries: its estimate refuses most before they are timed.
[[nodiscard]] inline OrderWork workOfMove(const OrderModel& model) {
  return OrderWork(100 + 2 * static_cast<std::int64_t>(model.actions()));
}

/// Of narrowing the windows of all actions for one time.
[[nodiscard]] inline OrderWork workOfWindows(const OrderModel& model) {
  const auto actions = static_cast<std::int64_t>(model.actions()), ranks = static_cast<std::int64_t>(std::max(1, model.ranks));
  return OrderWork(actions * (8'000 * static_cast<std::int64_t>(model.classes.size()) + 100 * actions) / ranks);
}

/// Of one set of windows that branch and bound examines.
[[nodiscard]] inline OrderWork workOfWindow(const OrderModel& model) {
  return OrderWork(350 + 6 * static_cast<std::int64_t>(model.actions()) / std::max(1, model.ranks));
}

/// Of a lower bound of all orders (`lowerBounds`).
[[nodiscard]] inline OrderWork workOfBound(const OrderProblem& problem) {
  return OrderWork(1'000 + 30 * static_cast<std::int64_t>(problem.costs.stages.size()) * problem.microbatches);
}

/// Of building rows by a greedy rule or from a family.
[[nodiscard]] inline OrderWork workOfBuild(const OrderModel& model) {
  return OrderWork(750 + 50 * static_cast<std::int64_t>(model.actions()));
}

}  // namespace pw
