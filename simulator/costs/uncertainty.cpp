#include "simulator/costs/uncertainty.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

#include "schedules/units.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

constexpr double kFourOfFive = 1.2816;  ///< quantile 0.9 of the normal distribution

}  // namespace

Ns errorBar(const Uncertainty& uncertainty, Ns step) {
  return Ns(std::llround(kFourOfFive * uncertainty.deviation * static_cast<double>(step)));
}

bool areIndistinguishable(const Uncertainty& uncertainty, Ns a, Ns b) {
  return abs(a - b) <= errorBar(uncertainty, a) + errorBar(uncertainty, b);
}

std::string sourceOf(const Uncertainty& uncertainty) {
  if (uncertainty.runs == 0) return "held-out steps of the job";
  return uncertainty.ofJobs ? "steps of " + counted(uncertainty.runs, "job") : counted(uncertainty.runs, "past run");
}

std::string formatErrorBar(const Uncertainty& uncertainty) {
  return fmt::format("± {:.1f} % ({})", 100 * kFourOfFive * uncertainty.deviation, sourceOf(uncertainty));
}

std::string formatPrediction(Ns step, const std::optional<Uncertainty>& uncertainty) {
  if (!uncertainty) return formatDuration(step);
  return fmt::format("{} ± {} ({})", formatDuration(step), formatDuration(errorBar(*uncertainty, step)), sourceOf(*uncertainty));
}

}  // namespace pw
