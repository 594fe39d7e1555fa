#pragma once

#include <QString>
#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "simulator/report/compare.h"
#include "simulator/report/metrics.h"

namespace pw::gui {

/// How far off predictions were: the median of |measured − predicted| / predicted over the steps of completed runs of this model and
/// schedule, or of this model if there are none with the schedule. Runs of one step count only if there are no longer ones, because the
/// first step warms up. Nothing if there is no usable run.
[[nodiscard]] std::optional<double> pastError(const std::vector<RunSummary>& runs, const std::string& model, const std::string& schedule);

/// Groups by what they contribute to the error, largest first, equal ones as they stood; those of no contribution (messages) last.
[[nodiscard]] std::vector<GroupError> ranked(std::vector<GroupError> groups);

/// The group that the error comes from most: compute of one kind and stage (`B of stage 1`), the optimizer, or sums of gradients. Waits and
/// messages follow from others and are left out. Ties: the earlier kind, then stage. Nothing where all are equal.
[[nodiscard]] std::optional<GroupError> mainCause(const Trace& predicted, const Trace& measured);

/// A group's name for display: `F` → `F forward`, `WAIT_B` → `WAIT_B gradient wait`; others as they are.
[[nodiscard]] QString groupLabel(const std::string& group);

/// The result of comparing two traces.
struct Verdict {
  Comparison comparison;
  std::optional<GroupError> cause;
  std::optional<Ns> replayed;  ///< makespan of the prediction with the measured durations of actions

  bool operator==(const Verdict&) const = default;
};
/// `plan`: of the run, for `replayed`; null: none. Cost: n log n.
[[nodiscard]] Verdict judge(const Trace& predicted, const Trace& measured, const Plan* plan);

/// The verdict in words: `Measured 3.1 % slower than predicted (12.4 ms, not 12.0 ms); most of it: B of stage 1, +2.1 ms.` If computing
/// explains less of it than messages and the engine itself, that is said. `before` and `after`: names of two runs; empty: prediction and
/// measurement.
[[nodiscard]] QString inWords(const Verdict& verdict, const QString& before = {}, const QString& after = {});

/// `▲ +2.10 ms`, `▼ −1.00 ms`, `0`.
[[nodiscard]] QString signedDuration(Ns difference);

}  // namespace pw::gui
