#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/costs/uncertainty.h"
#include "simulator/report/certificate.h"
#include "simulator/report/explain.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/report/phases.h"
#include "simulator/step/jitter.h"

namespace pw {

/// What a step processes on all devices together, for its rates; 0 where unknown.
struct StepWork {
  std::int64_t samples = 0, tokens = 0;
  double flops = 0;  ///< of the model (`modelFlops`)
  int devices = 1;
};

/// What `simulate` and `plan` report about a schedule with its costs.
struct PredictionReport {
  Metrics metrics;
  LowerBounds lowerBound;
  bool fits = true;  ///< under the requested limits
  Ns steadyPeriod = 0;
  std::vector<Bytes> processBytes;  ///< that each rank's process holds beside its tensors (`processBytes`); empty where unknown
  double utilisation = 0;           ///< of the model's FLOPs (`flopUtilisation`); 0 where unknown
  StepWork work;
  std::vector<RankPhases> phases;
  Explanation explanation;
  bool everyCause = false;  ///< show the whole critical path and every bubble, not only their sums
  std::optional<Jitter> jitter;
  std::optional<Uncertainty> uncertainty;  ///< of the times, where the profile was calibrated by runs
  std::optional<Certificate> certificate;  ///< of an order made for these costs
};

/// The whole report except for limits and jitter; arguments as in `traceOf`.
[[nodiscard]] PredictionReport predict(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times,
                                       const Trace& trace, bool everyCause = false);

}  // namespace pw
