#pragma once

#include <cstdint>
#include <functional>

#include "simulator/order/problem/model.h"

namespace pw {

struct AnnealOptions {
  static constexpr std::int64_t kAskEvery = 256;  ///< trials between two calls of `shouldContinue`

  std::uint64_t seed = 1;
  std::int64_t trials = 100'000;              ///< rows that are timed
  Ns enough = 0;                              ///< stops where the objective is no larger
  double hottest = 0.5;                       ///< first temperature, in mean durations of an action; it falls geometrically to a hundredth
  std::function<bool()> shouldContinue = {};  ///< false: stop
};

/// Rows improved by simulated annealing (Kirkpatrick et al., Science 220, 1983): most trials move an action within a rank's part of the
/// critical path to its beginning or end, as only that can shorten it (Nowicki and Smutnicki, Management Science 42, 1996); some move any
/// action a few places. Where memory then runs out, what frees it is pulled ahead. Returns the best rows met, which fit where the given
/// ones do, and no slower than those. Cost: `trials` times linear in actions.
[[nodiscard]] OrderRows annealOrder(const OrderModel& model, const OrderRows& start, const AnnealOptions& options);

}  // namespace pw
