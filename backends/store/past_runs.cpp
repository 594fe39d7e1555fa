#include "backends/store/past_runs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr int kMostSteps = 32;  ///< medians of so many are as good as of all

struct LoadedRun {
  RunRecord run;
  std::vector<Trace> steps;
};

/// Whether a calibration can learn from it.
bool isUsable(const RunSummary& run) {
  return run.state == RunState::Completed && run.steps >= 2 && !run.facts.synthetic && run.facts.backward != Backward::Dynamic;
}

std::vector<Trace> stepsOf(const RunStore& store, const RunRecord& run, int steps) {
  std::vector<Trace> result;
  const int used = std::min(kMostSteps, steps - 1);
  for (int i = 0; i < used; ++i) {
    const int position = 1 + static_cast<int>(static_cast<std::int64_t>(i) * (steps - 1) / used);
    result.push_back(std::move(store.loadSteps(run.id, position, 1).at(0).measured));
  }
  return result;
}

/// The run, and why it cannot be used where it cannot.
RunRecord chosenRun(const RunStore& store, const std::vector<RunSummary>& runs, std::optional<RunId> id) {
  const auto found =
      std::ranges::find_if(runs.rbegin(), runs.rend(), [&](const RunSummary& run) { return id ? run.id == *id : isUsable(run); });
  if (found == runs.rend()) {
    if (id) return store.load(id);  // which says that there is no such run
    throw UsageError("the store has no run to calibrate by: completed, of two steps or more, following its schedule and not --synthetic");
  }
  if (!isUsable(*found)) {
    throw UsageError(fmt::format(
        "run {} cannot be used: a calibration needs a completed run of two steps or more that followed its schedule and is not --synthetic",
        found->id.value));
  }
  return store.load(found->id);
}

}  // namespace

CalibratedProfile calibratedBy(const RunStore& store, std::optional<RunId> id) {
  const std::vector<RunSummary> summaries = store.list();
  const RunRecord like = chosenRun(store, summaries, id);
  std::vector<LoadedRun> loaded;
  for (const RunSummary& summary : summaries) {
    if (!isUsable(summary)) continue;
    RunRecord run = store.load(summary.id);
    if (run.plan.profile != like.plan.profile || howComputed(run) != howComputed(like) || run.machine != like.machine) continue;
    std::vector<Trace> steps = stepsOf(store, run, summary.steps);
    loaded.push_back({std::move(run), std::move(steps)});
  }
  std::vector<PastRun> runs;
  CalibratedProfile result;
  for (const LoadedRun& one : loaded) {
    runs.push_back({&one.run.plan.schedule, &one.run.plan.costs, &one.run.predicted, one.steps});
    result.ids.push_back(one.run.id);
  }
  result.report = calibrate(runs, like.plan.profile.actionOverhead);
  result.profile = calibrated(like.plan.profile, result.report.calibration);
  result.profile.uncertainty = result.report.uncertainty;
  return result;
}

}  // namespace pw
