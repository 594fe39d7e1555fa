#pragma once

#include <optional>
#include <string>

#include "simulator/report/verdict.h"
#include "simulator/trace/reductions.h"

namespace pw {

/// A step to compare with another.
struct JudgedStep {
  Trace trace;
  std::optional<ReductionGroups> reductions = ReductionGroups();  ///< which ranks wait for each other; nothing: none, as it is predicted
};

/// Two steps compared, the reductions of gradients from when the last of their ranks begins them (`cutReductionWaits`).
struct StepVerdict {
  Verdict verdict;
  Ns beforeWaits = 0, afterWaits = 0;  ///< for others to begin reductions, over all ranks; in no group of the verdict

  bool operator==(const StepVerdict&) const = default;
};

/// Cost: as `judge`.
[[nodiscard]] StepVerdict judgeSteps(JudgedStep before, JudgedStep after, Splits splits = Splits::Same);
/// Of a plan's prediction and a step of the plan, with what its schedule would take with the measured durations.
[[nodiscard]] StepVerdict judgePrediction(const Trace& predicted, JudgedStep measured, const Schedule& schedule, const CostTable& costs);

/// How long the ranks of a step, `run 3`, waited for others to begin reductions, a sentence; empty where they did not.
[[nodiscard]] std::string waitsText(const std::string& name, Ns waits);

}  // namespace pw
