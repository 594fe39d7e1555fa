#pragma once

#include <optional>
#include <string>
#include <vector>

#include "schedules/check.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/report/certificate.h"
#include "simulator/report/explain.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/memory_report.h"
#include "simulator/report/metrics.h"
#include "simulator/report/phases.h"
#include "simulator/report/verdict.h"
#include "simulator/step/jitter.h"

namespace pw {

/// What `simulate` and `plan` report about a schedule with its costs.
struct PredictionReport {
  Metrics metrics;
  LowerBounds lowerBound;
  bool fits = true;  ///< under the requested limits
  Ns steadyPeriod = 0;
  Bytes processBytes = 0;  ///< that each rank's process holds beside its tensors (`Profile::processBytes`); 0 where unknown
  double utilisation = 0;  ///< of the model's FLOPs (`flopUtilisation`); 0 where unknown
  std::vector<RankPhases> phases;
  Explanation explanation;
  bool everyCause = false;  ///< show the whole critical path and every bubble, not only their sums
  std::optional<Jitter> jitter;
  std::optional<Certificate> certificate;  ///< of an order made for these costs
};

/// The whole report except for limits and jitter; arguments as in `traceOf`.
[[nodiscard]] PredictionReport predict(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times,
                                       const Trace& trace, bool everyCause = false);

/// JSON documents of the command line, as text without a final newline: `simulate --json`, `compare --json`, `check --json`. Keys have a
/// fixed order. `actions` counts compute actions, so a schedule has the same number lowered or not. A schedule is `valid` when it has no
/// problem on any transport; `stops` says on which transports a problem stops it. `sentence`: the verdict's, see `verdictText`.
[[nodiscard]] std::string predictionJson(const PredictionReport& prediction, const Schedule& schedule, const CostTable& costs);
[[nodiscard]] std::string comparisonJson(const Verdict& verdict, const std::string& sentence);
[[nodiscard]] std::string problemsJson(const Schedule& schedule, const std::vector<Problem>& problems);
/// A JSON list: of each rank `{rank, peak_bytes, at, parts}`, a part `{kind, stage, microbatches, bytes}`.
[[nodiscard]] std::string memoryJson(const std::vector<RankMemory>& ranks);
/// A JSON list of `{op, module, count, why}`.
[[nodiscard]] std::string notCountedJson(const std::vector<NotCounted>& list);

}  // namespace pw
