#pragma once

#include <span>

#include "simulator/costs/calibration.h"
#include "simulator/costs/uncertainty.h"
#include "simulator/trace/trace.h"

namespace pw {

struct Schedule;

/// What is assumed of predictions of models and schedules that were not run before, besides what runs show; it counts as so many runs.
inline constexpr double kPriorDeviation = 0.04;
inline constexpr double kPriorRuns = 2;

/// A run as a calibration reads it. What it refers to must outlive the call.
struct PastRun {
  const Schedule* schedule = nullptr;
  const CostTable* costs = nullptr;  ///< that it was predicted with
  const Trace* predicted = nullptr;
  std::span<const Trace> steps;  ///< measured, without those that warm up; at least one
};

struct CalibrationReport {
  Calibration calibration;
  Uncertainty uncertainty;  ///< of predictions made with it
  double errorBefore = 0;   ///< median of |measured − predicted| / predicted over the runs' steps
  double errorAfter = 0;    ///< the same of runs predicted with a calibration that they had no part in; of a single run, with its own

  bool operator==(const CalibrationReport&) const = default;
};

/// Fits what the costs lack to measured steps of runs (at least one) that were predicted from the same profile, which has this
/// `actionOverhead`:
/// - factors: summed durations of actions of a kind, measured over predicted;
/// - per action: the mean pause between an action that sends nothing and the next one of its rank, where that waited for nothing;
/// - per send: by how much that pause is longer after an action that sends; 0 where the runs have only one of the two kinds;
/// - per message: the mean of how much later than predicted an action began that waited for its message.
///
/// Of each run, the steps between the quartiles by length count.
///
/// Uncertainty: of each run the median step's relative distance from its prediction by a calibration of the others (if there are others),
/// together with how much steps spread within runs, and with a prior of 4 % that counts as two runs, so that few runs promise little. Runs
/// that lack actions of their prediction do not count towards what needs them. Cost: (runs + 1) · n log n.
[[nodiscard]] CalibrationReport calibrate(std::span<const PastRun> runs, Ns actionOverhead);

}  // namespace pw
