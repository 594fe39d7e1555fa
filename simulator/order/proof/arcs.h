#pragma once

#include <vector>

#include "simulator/order/problem/model.h"

namespace pw {

/// An action that ends, and its message arrives, before another starts.
struct WindowArc {
  ActionId from, to;
  Ns lag = 0;
};

/// What every order of a model has in common: messages, the microbatches of a class in their order, and room: the m-th F of a stage waits
/// for as many I and W of its rank as must have ended for it to fit, with all others ended that can have been. By their ends, those of
/// earlier actions first. `smallest` is the microbatch whose transfers count.
[[nodiscard]] std::vector<WindowArc> windowArcs(const OrderModel& model, Microbatch smallest);

/// By action and class of its rank: how many of that class come before it, by these arcs; `after`: how many come after it.
struct WindowAncestors {
  std::vector<std::vector<std::int32_t>> before, after;
};
[[nodiscard]] WindowAncestors windowAncestors(const OrderModel& model, const std::vector<WindowArc>& arcs);

}  // namespace pw
