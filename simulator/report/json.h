#pragma once

#include <string>
#include <vector>

#include "schedules/check.h"
#include "simulator/costs/operator_costs.h"
#include "simulator/report/memory_report.h"
#include "simulator/report/prediction_report.h"
#include "simulator/report/step_verdict.h"

namespace pw {

/// JSON documents of the command line, as text without a final newline: `simulate --json`, `compare --json`, `check --json`. Keys have a
/// fixed order. `actions` counts compute actions, so a schedule has the same number lowered or not. A schedule is `valid` when it has no
/// problem on any transport; `stops` says on which transports a problem stops it. `sentence`: the verdict's, see `verdictText`.
[[nodiscard]] std::string predictionJson(const PredictionReport& prediction, const Schedule& schedule, const CostTable& costs);
[[nodiscard]] std::string comparisonJson(const StepVerdict& verdict, const std::string& sentence);
[[nodiscard]] std::string problemsJson(const Schedule& schedule, const std::vector<Problem>& problems);
/// A JSON list: of each rank `{rank, peak_bytes, at, parts}`, a part `{kind, stage, microbatches, bytes}`.
[[nodiscard]] std::string memoryJson(const std::vector<RankMemory>& ranks);
/// A JSON list of `{op, module, count, why}`.
[[nodiscard]] std::string notCountedJson(const std::vector<NotCounted>& list);

}  // namespace pw
