#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedules/ids.h"
#include "simulator/step/step_clock.h"

namespace pw {

/// How good an order made for given costs is.
struct Certificate {
  StepClock clock = StepClock::Flush;
  Ns time = 0;                         ///< on the clock
  Ns lowerBound = 0;                   ///< no order takes less on it, whatever it recomputes
  std::string foundBy = {};            ///< a family's name, `serial`, `greedy`, `annealing` or `branch and bound`
  std::vector<Stage> recomputed = {};  ///< stages whose forward runs again before their backward

  /// Whether no order is faster, as the bound proves.
  [[nodiscard]] bool optimal() const { return time <= lowerBound; }
  /// The part of the time that a better order might save.
  [[nodiscard]] double gap() const { return time > 0 ? static_cast<double>(time - lowerBound) / static_cast<double>(time) : 0; }

  bool operator==(const Certificate&) const = default;
};

/// `optimal`, `gap 3.1 %`: for tables.
[[nodiscard]] std::string gapText(const Certificate& certificate);
/// `no order has a makespan more than 3.1 % shorter`, or `proven: no order has a shorter makespan`, and what is recomputed.
[[nodiscard]] std::string toString(const Certificate& certificate);

/// A JSON object: `objective` (`flush`, `window`), `time_ns`, `lower_bound_ns`, `gap`, `optimal`, `found_by`, `recomputed_stages`.
[[nodiscard]] std::string toJson(const Certificate& certificate);

}  // namespace pw
