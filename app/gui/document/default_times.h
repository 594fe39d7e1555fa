#pragma once

#include "simulator/step/cost_table.h"

namespace pw::gui {

inline constexpr Ns kLongestDefault{1'000'000'000'000};  ///< as of latencies

/// What an action of each kind takes, on every stage alike, in a schedule that has no times of its own. A backward that is split takes
/// `input` and then `weight`.
struct DefaultTimes {
  Ns forward = kDefaultForward;
  Ns backward = kDefaultBackwardRatio * kDefaultForward;
  Ns input = backward / 2;
  Ns weight = backward / 2;

  bool operator==(const DefaultTimes&) const = default;
};

/// The costs of so many stages; messages take no time.
[[nodiscard]] inline CostTable costsOf(const DefaultTimes& times, int stages) {
  SyntheticCosts costs;
  costs.forward = {times.forward};
  costs.backward = {times.backward};
  costs.backwardInput = {times.input};
  costs.backwardWeight = {times.weight};
  return syntheticTable(costs, stages);
}

}  // namespace pw::gui
