#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "simulator/order/problem/model.h"
#include "simulator/order/proof/windows.h"

namespace pw {

struct ExactOptions {
  std::vector<std::pair<ActionId, ActionId>> decided = {};        ///< only orders where the first comes before the second, on the same rank
  std::int64_t windows = 0;                                       ///< about how many to examine (`Windows::examined`)
  std::function<bool(std::int64_t windows)> shouldContinue = {};  ///< polled at each node, with those examined
  bool probes = false;  ///< before branching, decides pairs of which one order alone leaves too little (shaving): for large models
};

struct ExactOrder {
  OrderRows rows;            ///< that take less; empty: none were met
  bool proven = false;       ///< there are none
  std::int64_t windows = 0;  ///< examined
};

/// An order of the windows' model that takes less than `time`, or the proof that there is none: branch and bound for small models. The
/// windows that the time leaves are narrowed; of the two actions of a rank whose order leaves the least, both orders are tried, that which
/// leaves more first (as in Smith and Cheng, Slack-based heuristics for constraint satisfaction scheduling, AAAI 1993). An order that is
/// complete counts with its own times and memory. Never proven where microbatches differ, as they are taken in one order here, where
/// neighbouring stages exchange nothing, nor on the window clock where a rank may begin late (`Windows::knowsBegins`). Cost of a node:
/// `Windows::narrow`, and O(actions · actions of a rank).
[[nodiscard]] ExactOrder exactOrder(Windows& windows, Ns time, const ExactOptions& options);

}  // namespace pw
