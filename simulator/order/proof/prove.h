#pragma once

#include <functional>
#include <optional>

#include "simulator/order/problem/found.h"
#include "simulator/order/problem/problem.h"
#include "simulator/order/problem/work.h"

namespace pw {

/// What branch and bound made of a bound and a time.
struct OrderProof {
  Ns bound = 0;                      ///< no order takes less, whatever it recomputes
  std::optional<FoundOrder> better;  ///< that takes less than the time; its certificate has this bound
  OrderWork work = 0;                ///< that was done
};

struct ProofEffort {
  OrderWork work = 0;
  int threads = 1;  ///< that share it; any number gives the same proof
};

/// Raises `bound`, which no order undercuts, and lowers `time`, which an order takes, with about that much work: searches for an order that
/// takes less than a time between the two (`exactOrder`), first halfway; where a part of the remaining work does not decide that, closer to
/// `time`. Of large problems, where that is rare, it first raises the bound: halfway, then closer to it; each time twice, with probes and
/// without. Where stages may recompute, each search branches over these choices, too. A choice still open costs neither time nor memory;
/// where the windows are empty even so, no choice below it is tried. Does nothing where the work is less than that of narrowing windows
/// once. `shouldContinue` is polled with the work done, one call at a time; false: returns what is known so far.
[[nodiscard]] OrderProof proveOrder(const OrderProblem& problem, Ns bound, Ns time, const ProofEffort& effort,
                                    const std::function<bool(OrderWork work)>& shouldContinue = {});

}  // namespace pw
