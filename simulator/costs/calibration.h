#pragma once

#include "simulator/costs/profile.h"
#include "simulator/step/cost_table.h"

namespace pw {

/// What running adds to the times of a profile, which are those of one process that computes without pause.
struct Calibration {
  double forward = 1;    ///< factor of F: ranks that compute at once share caches, memory and power
  double backward = 1;   ///< factor of B, I and W
  double optimizer = 1;  ///< factor
  Ns perAction = 0;      ///< added to each F, B, I and W: what passes between two of a rank where nothing is waited for
  Ns perSend = 0;        ///< added to an action for each message that it sends to another rank, beside `perAction`
  Ns perMessage = 0;     ///< added to the latency of each message

  bool operator==(const Calibration&) const = default;
};

/// The profile with these times: plans made from it have the costs that `calibrated` makes of theirs, to rounding, where the same splits
/// and the same values are recomputed. Links that are not used change too.
[[nodiscard]] Profile calibrated(Profile profile, const Calibration& calibration);
/// The costs of one plan, likewise; latencies stay ≥ 0. `actionOverhead`: of the plan's profile, which is not scaled.
/// `placement`: of the plan.
[[nodiscard]] CostTable calibrated(CostTable costs, const Calibration& calibration, Ns actionOverhead, const Placement& placement);

}  // namespace pw
