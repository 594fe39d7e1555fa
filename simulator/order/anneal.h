#pragma once

#include <cstdint>
#include <functional>

#include "simulator/order/problem/model.h"

namespace pw {

struct AnnealOptions {
  static constexpr std::int64_t kAskEvery = 256;  ///< trials between two calls of `shouldContinue`

  std::uint64_t seed = 1;
  std::int64_t trials = 100'000;              ///< moves that are tried
  Ns enough = 0;                              ///< stops where the objective is no larger
  double hottest = 0.5;                       ///< first temperature, in mean durations of an action; it falls geometrically to a hundredth
  std::function<bool()> shouldContinue = {};  ///< false: stop
};

/// Rows improved by simulated annealing (Kirkpatrick et al., Science 220, 1983): most trials move an action within a rank's part of the
/// critical path to its beginning or end, as only that can shorten it (Nowicki and Smutnicki, Management Science 42, 1996); some move any
/// action a few places, some all of a class. Where memory then runs out, what frees it is pulled ahead. Returns the best rows met: that fit
/// if some do, and of those the fastest; no slower than the given ones, unless those do not fit. Cost: `trials` times linear in
/// actions at most; most are refused by an estimate (`OrderTimer::estimate`).
[[nodiscard]] OrderRows annealOrder(const OrderModel& model, const OrderRows& start, const AnnealOptions& options);

}  // namespace pw
