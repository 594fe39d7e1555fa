#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "simulator/order/find_order.h"

namespace pw {

/// What branch and bound made of a bound and a time.
struct OrderProof {
  Ns bound = 0;                      ///< no order takes less, whatever it recomputes
  std::optional<FoundOrder> better;  ///< that takes less than the time; its certificate has this bound
  std::int64_t work = 0;             ///< in nanoseconds (`OrderWork`)
};

/// Raises `bound` and lowers `time`, which an order takes, with so much work: asks for an order that takes less than a time between both
/// (`exactOrder`), first halfway, then, where that is not answered with a part of what is left, closer to `time`. Where stages may
/// recompute, each answer is a search over these choices, too: those still open cost neither the time nor the memory, and where no window
/// is left, no choice is. `goOn` is polled with the work done; false: what is known so far.
[[nodiscard]] OrderProof proveOrder(const OrderProblem& problem, Ns bound, Ns time, std::int64_t work,
                                    const std::function<bool(std::int64_t work)>& goOn = {});

}  // namespace pw
