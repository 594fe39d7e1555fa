#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "simulator/order/greedy.h"

namespace pw {

struct TuneOptions {
  static constexpr std::int64_t kAskEvery = 64;  ///< trials between two calls of `shouldContinue`

  std::uint64_t seed = 1;
  std::int64_t trials = 1000;  ///< rows that are built
  Ns enough = 0;
  double hottest = 0.5;                       ///< first temperature, in mean durations of an action
  std::function<bool()> shouldContinue = {};  ///< false: stop
};

struct TunedOrder {
  GreedyRule rule;
  OrderRows rows;
  Ns objective = 0;
};

/// Anneals the offsets of a greedy rule: a few numbers that decide all microbatches at once.
[[nodiscard]] TunedOrder tuneOrder(const OrderModel& model, const GreedyRule& start, const TuneOptions& options);

/// Offsets of one microbatch that runs alone as early as possible (W and forwards as late as the others allow), with the busiest
/// rank's work on a microbatch as period.
[[nodiscard]] GreedyRule ruleOfOneMicrobatch(const OrderModel& model);

}  // namespace pw
