#include "simulator/report/step_verdict.h"

#include <fmt/format.h>

#include "schedules/units.h"

namespace pw {
namespace {

/// Returns what it cut off.
Ns cutWaits(JudgedStep& step) { return step.reductions ? cutReductionWaits(step.trace, *step.reductions) : Ns(0); }

}  // namespace

StepVerdict judgeSteps(JudgedStep before, JudgedStep after, Splits splits) {
  StepVerdict result;
  result.beforeWaits = cutWaits(before);
  result.afterWaits = cutWaits(after);
  result.verdict = judge(before.trace, after.trace, {}, splits);
  return result;
}

StepVerdict judgePrediction(const Trace& predicted, JudgedStep measured, const Schedule& schedule, const CostTable& costs) {
  StepVerdict result;
  result.afterWaits = cutWaits(measured);
  result.verdict = judge(predicted, measured.trace, replayedMakespan(schedule, costs, measured.trace));
  return result;
}

std::string waitsText(const std::string& name, Ns waits) {
  if (waits == 0) return {};
  return fmt::format(
      "Before reductions of gradients, ranks of {} waited {} in all for others to begin them; REDUCE_GRAD is without these waits.", name,
      formatDuration(waits));
}

}  // namespace pw
