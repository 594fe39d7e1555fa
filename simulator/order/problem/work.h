#pragma once

#include <algorithm>
#include <cstdint>

#include "simulator/order/problem/model.h"

namespace pw {

/// What a search costs, in nanoseconds on one core of a machine of 2020: counted, so that the same input gives the same order.
struct OrderWork {
  static std::int64_t ofTrial(const OrderModel& model) { return 225 + 5 * static_cast<std::int64_t>(model.actions()); }
  static std::int64_t ofWindows(const OrderModel& model) {
    const auto actions = static_cast<std::int64_t>(model.actions()), ranks = static_cast<std::int64_t>(std::max(1, model.ranks));
    return actions * (8'000 * static_cast<std::int64_t>(model.classes.size()) + 100 * actions) / ranks;
  }
  /// That branch and bound looks at.
  static std::int64_t ofWindow(const OrderModel& model) {
    return 350 + 6 * static_cast<std::int64_t>(model.actions()) / std::max(1, model.ranks);
  }
  static std::int64_t ofBuild(const OrderModel& model) { return 750 + 50 * static_cast<std::int64_t>(model.actions()); }
};

}  // namespace pw
