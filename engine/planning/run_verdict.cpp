#include "engine/planning/run_verdict.h"

#include <utility>

#include "simulator/plan/plan.h"

namespace pw {

StepVerdict judgeRun(const RunRecord& run, Trace measured) {
  return judgePrediction(run.predicted, {std::move(measured)}, run.plan.schedule, run.plan.costs);
}

}  // namespace pw
