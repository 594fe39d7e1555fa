#include "simulator/job/held_out.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"
#include "simulator/history/calibrate.h"
#include "simulator/history/student.h"
#include "simulator/job/job_costs.h"
#include "simulator/text/median.h"

namespace pw {
namespace {

constexpr int kManyDegrees = 1000;  ///< with these Student's distribution is the normal one

double relativeError(Ns measured, Ns predicted) {
  return predicted > 0 ? static_cast<double>(measured - predicted) / static_cast<double>(predicted) : 0;
}

/// The job with these of its steps alone; they are its usual ones.
Job withOnly(const Job& job, std::span<const std::size_t> steps) {
  Job part{.name = job.name,
           .replicas = job.replicas,
           .tensor = job.tensor,
           .schedule = job.schedule,
           .timedMessages = job.timedMessages,
           .operations = job.operations,
           .steps = {},
           .notes = {},
           .times = job.times};
  for (const std::size_t k : steps) part.steps.push_back(job.steps[k]);
  return part;
}

/// `heldOutDeviation`, of few steps as much wider as Student's distribution is than the normal one where it holds four of five.
std::optional<double> deviationOfSteps(const Job& job, const StepPrediction& predict) {
  const std::optional<double> rms = heldOutDeviation(job, predict);
  if (!rms) return std::nullopt;
  constexpr double kUpper = 0.9;  // a tenth is on either side
  const int degrees = static_cast<int>(std::min<std::size_t>(usualSteps(job).size() - 1, kManyDegrees));
  return *rms * studentQuantile(kUpper, degrees) / studentQuantile(kUpper, kManyDegrees);
}

}  // namespace

Ns predictedStep(const Job& job, const Schedule& schedule) { return stepWith(schedule, timesFor(job, schedule)); }

std::optional<double> heldOutDeviation(const Job& job, const StepPrediction& predict) {
  const std::vector<std::size_t> usual = usualSteps(job);
  if (usual.size() < 2 || job.times != TimesOf::Measured) return std::nullopt;
  const std::span<const std::size_t> all = usual;
  const auto first = all.first(usual.size() / 2), second = all.subspan(usual.size() / 2);
  double squares = 0;
  for (const auto& [from, held] : {std::pair(first, second), std::pair(second, first)}) {
    const Job part = withOnly(job, from);
    const Ns predicted = predict ? predict(part) : predictedStep(part, job.schedule);
    for (const std::size_t k : held) squares += std::pow(relativeError(job.steps[k].step, predicted), 2);
  }
  return std::sqrt(squares / static_cast<double>(usual.size()));
}

std::optional<Uncertainty> uncertaintyOfOthers(const Job& job, const StepPrediction& predict) {
  const std::optional<double> ofSteps = deviationOfSteps(job, predict);
  if (!ofSteps && !job.uncertainty) return std::nullopt;
  const Uncertainty base = job.uncertainty.value_or(Uncertainty{kPriorDeviation, 1});
  const bool ofJobs = base.runs > 1;
  return Uncertainty{std::hypot(base.deviation, ofSteps.value_or(0), stretchOf(job) - 1), ofJobs ? base.runs : 0, ofJobs};
}

std::optional<Uncertainty> uncertaintyOf(const Job& job, const Schedule& schedule, const StepPrediction& predict) {
  const bool isOwn = schedule.placement == job.schedule.placement && schedule.rows == job.schedule.rows;
  if (!isOwn) return uncertaintyOfOthers(job, predict);
  const std::optional<double> ofSteps = deviationOfSteps(job, predict);
  return ofSteps ? std::optional(Uncertainty{*ofSteps, 0}) : std::nullopt;
}

JobCalibration calibrateJob(Job job, std::span<const Job> others) {
  const auto requireMeasured = [](const Job& one) {
    if (one.times != TimesOf::Measured)
      throw UsageError(fmt::format("the steps of {} are {}, which says nothing of how long they take; give a measured job", one.name,
                                   nameOf(one.times)));
  };
  requireMeasured(job);
  JobCalibration result;
  result.ofSteps = heldOutDeviation(job);
  if (!result.ofSteps && others.empty())
    throw UsageError(
        fmt::format("{} has one step, and none to be predicted from it; import more steps, or give further jobs of the model", job.name));
  double squares = kPriorRuns * kPriorDeviation * kPriorDeviation;
  for (const Job& other : others) {
    requireMeasured(other);
    std::vector<Ns> steps;
    for (const std::size_t k : usualSteps(other)) steps.push_back(other.steps[k].step);
    PredictedJob one{other.name, predictedStep(job, other.schedule), *lowerMedianOf(std::move(steps)), 0};
    one.error = relativeError(one.measured, one.predicted);
    squares += one.error * one.error;
    result.others.push_back(std::move(one));
  }
  const auto count = static_cast<double>(others.size());
  const double deviation = std::sqrt(squares / (kPriorRuns + count));
  if (!(deviation <= kMostDeviation))
    throw UsageError(fmt::format("steps of the further jobs take more than {} times as long as {} predicts; give jobs of the same model",
                                 kMostDeviation, job.name));
  job.uncertainty = Uncertainty{deviation, 1 + static_cast<int>(others.size()), true};
  result.job = std::move(job);
  return result;
}

}  // namespace pw
