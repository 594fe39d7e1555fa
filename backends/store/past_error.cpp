#include "backends/store/past_error.h"

#include <cmath>
#include <utility>
#include <vector>

#include "simulator/text/median.h"

namespace pw {

std::optional<double> pastError(const std::vector<RunSummary>& runs, const std::string& model, const std::string& schedule,
                                CostSource costs, const std::string& cluster) {
  const auto errorsOf = [&](bool anySchedule, bool anyLength) {
    std::vector<double> errors;
    for (const RunSummary& run : runs) {
      if (run.model != model || run.facts.synthetic || !run.failure.empty() || run.predictedStep <= 0 || run.medianMeasuredStep <= 0)
        continue;
      if (run.facts.costs != costs || run.cluster != cluster) continue;
      if ((run.schedule != schedule && !anySchedule) || (run.steps < 2 && !anyLength)) continue;
      errors.push_back(std::abs(static_cast<double>(run.medianMeasuredStep - run.predictedStep)) / static_cast<double>(run.predictedStep));
    }
    return medianOf(errors);
  };
  for (const auto& [anySchedule, anyLength] : {std::pair{false, false}, {false, true}, {true, false}, {true, true}}) {
    if (const auto error = errorsOf(anySchedule, anyLength)) return error;
  }
  return std::nullopt;
}

}  // namespace pw
