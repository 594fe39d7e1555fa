#pragma once

#include <cstdint>
#include <functional>

#include "simulator/order/problem/model.h"

namespace pw {

struct PolishOptions {
  std::uint64_t seed = 1;
  std::int64_t windows = 0;                                       ///< about how many to examine (`Windows::examined`)
  Ns enough = 0;                                                  ///< stops where the objective is no larger
  std::function<bool(std::int64_t windows)> shouldContinue = {};  ///< polled with those examined; false: stop
};

/// Rows improved by large neighbourhood search (Shaw, Using constraint programming and local search methods to solve vehicle routing
/// problems, CP 1998): repeatedly frees the order of a few actions, those of some microbatches or of some stretch of time, and searches for
/// a better one by branch and bound (`exactOrder`). It frees as many as that can decide within a few hundred nodes. Returns rows that fit
/// where the given ones do, and are no slower.
[[nodiscard]] OrderRows polishOrder(const OrderModel& model, const OrderRows& start, const PolishOptions& options);

}  // namespace pw
