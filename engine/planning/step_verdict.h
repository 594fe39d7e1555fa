#pragma once

#include <string>

#include "backends/store/run_store.h"
#include "simulator/report/verdict.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Two steps compared, the reductions of gradients from when the last of their ranks begins them (`cutReductionWaits`).
struct StepVerdict {
  Verdict verdict;
  Ns beforeWaits = 0, afterWaits = 0;  ///< for others to begin reductions, over all ranks; in no group of the verdict

  bool operator==(const StepVerdict&) const = default;
};

/// Of any two steps whose ranks are numbered as those of runs are. Cost: as `judge`.
[[nodiscard]] StepVerdict judgeSteps(Trace before, Trace after);
/// Of a run's prediction and a step of it, with what its plan would take with the measured durations.
[[nodiscard]] StepVerdict judgeRun(const RunRecord& run, Trace measured);

/// `comparisonJson` with `predicted_reduction_waits_ns` and `measured_reduction_waits_ns`.
[[nodiscard]] std::string comparisonJson(const StepVerdict& verdict, const std::string& sentence);

}  // namespace pw
