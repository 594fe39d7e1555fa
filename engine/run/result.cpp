#include "engine/run/result.h"

#include <fmt/format.h>

namespace pw {

std::string nonFinite(const std::vector<StepLog>& ranks) {
  const std::optional<JobRank> first = ranks.front().notFinite;
  return first ? ranks.at(first->index()).whatNotFinite : "";
}

std::string nonFiniteSentence(int step, const std::string& what, bool foundOperator) {
  return fmt::format("Step {} is not finite: {}. Nothing of this step was saved; use {}--skip-nonfinite to skip the updates of such steps",
                     step, what, foundOperator ? "" : "--find-nan to see which operator made it, or ");
}

}  // namespace pw
