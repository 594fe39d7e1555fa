#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "simulator/costs/uncertainty.h"
#include "simulator/job/job.h"

namespace pw {

/// The step that the job's usual times predict for a schedule (`timesFor`), with what comes after its last action: of its own schedule the
/// usual step. Cost: as `typicalTimes` and two simulations.
[[nodiscard]] Ns predictedStep(const Job& job, const Schedule& schedule);

/// The step that a job's usual times predict for its own schedule; empty: `predictedStep`.
using StepPrediction = std::function<Ns(const Job&)>;

/// How far off a job's usual times are of steps that they are not from: the first half of its usual steps predicts the second, and the
/// second the first; the root of the mean squared relative distance of steps from their prediction. It is the spread of steps alone: each
/// half's times are stretched to its own usual step (`timesFor`). Nothing for fewer than two usual steps, and for steps that were not
/// measured. Cost: two predictions.
[[nodiscard]] std::optional<double> heldOutDeviation(const Job& job, const StepPrediction& predict = {});

/// The uncertainty of predictions from the job's usual times. Of the schedule that it ran: what its held-out steps show, of few steps as
/// much wider as Student's distribution is than the normal one. Of another one (or other stages, ranks or microbatches) also how much the
/// job's times had to be stretched (`stretchOf`), and how far off other jobs were that were predicted from it (`Job::uncertainty`), without
/// these a prior of 4 %; its `runs` are these jobs and this one, or 0 where it has its own steps alone. Nothing where neither is known.
/// `predict`: as the prediction was made.
[[nodiscard]] std::optional<Uncertainty> uncertaintyOf(const Job& job, const Schedule& schedule, const StepPrediction& predict = {});
/// That of another schedule.
[[nodiscard]] std::optional<Uncertainty> uncertaintyOfOthers(const Job& job, const StepPrediction& predict = {});

/// A job that was predicted from the times of another.
struct PredictedJob {
  std::string name;
  Ns predicted = 0, measured = 0;  ///< steps; the measured one is the median of the usual ones
  double error = 0;                ///< (measured − predicted) / predicted

  bool operator==(const PredictedJob&) const = default;
};

inline constexpr int kMostDeviation = 1000;  ///< that a job can hold

struct JobCalibration {
  Job job;                        ///< with its uncertainty
  std::optional<double> ofSteps;  ///< `heldOutDeviation`
  std::vector<PredictedJob> others;
};

/// Predicts the schedules of other jobs of the same model from a job's times, and puts into the job how far off they are, together with the
/// prior, which counts as two jobs. Throws UsageError for a job that was not measured, for one of a single step without others, of which
/// nothing can be held out, and for others that are off by more than `kMostDeviation`, which are of another model.
[[nodiscard]] JobCalibration calibrateJob(Job job, std::span<const Job> others);

}  // namespace pw
