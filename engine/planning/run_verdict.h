#pragma once

#include "backends/store/run_store.h"
#include "simulator/report/step_verdict.h"

namespace pw {

/// Of a run's prediction and a step of it, as of `judgePrediction`.
[[nodiscard]] StepVerdict judgeRun(const RunRecord& run, Trace measured);

}  // namespace pw
