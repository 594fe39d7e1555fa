#pragma once

#include <string>

#include "schedules/check.h"
#include "simulator/metrics.h"

namespace pw {

/// JSON documents of the command line, as text without a final newline: `simulate --json`, `compare --json`, `check --json`. Keys stand in
/// a fixed order. `actions` counts compute actions, so a schedule has the same number lowered or not. Problems that only blocking sends would have
/// (`blocking_only`) leave a schedule `valid`.
[[nodiscard]] std::string metricsJson(const Metrics& metrics, const Schedule& schedule, const CostTable& costs, Ns lowerBound);
[[nodiscard]] std::string comparisonJson(const Comparison& comparison);
[[nodiscard]] std::string problemsJson(const Schedule& schedule, const std::vector<Problem>& problems);

}  // namespace pw
