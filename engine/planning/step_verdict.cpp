#include "engine/planning/step_verdict.h"

#include <nlohmann/json.hpp>

#include "simulator/plan/plan.h"
#include "simulator/report/json.h"
#include "simulator/text/json_text.h"
#include "simulator/trace/reductions.h"

namespace pw {

StepVerdict judgeSteps(Trace before, Trace after) {
  StepVerdict result;
  result.beforeWaits = cutReductionWaits(before);
  result.afterWaits = cutReductionWaits(after);
  result.verdict = judge(before, after);
  return result;
}

StepVerdict judgeRun(const RunRecord& run, Trace measured) {
  StepVerdict result;
  result.afterWaits = cutReductionWaits(measured);
  result.verdict = judge(run.predicted, measured, replayedMakespan(run.plan.schedule, run.plan.costs, measured));
  return result;
}

std::string comparisonJson(const StepVerdict& verdict, const std::string& sentence) {
  auto document = ownJson(comparisonJson(verdict.verdict, sentence));
  document["predicted_reduction_waits_ns"] = verdict.beforeWaits;
  document["measured_reduction_waits_ns"] = verdict.afterWaits;
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace pw
