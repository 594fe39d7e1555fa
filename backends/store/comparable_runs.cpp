#include "backends/store/comparable_runs.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pw {
namespace {

constexpr int kStepsAtOnce = 64;  ///< a step of many actions is megabytes

RunTimes timesOf(const RunStore& store, RunId run, int stages) {
  RunTimes times;
  for (int first = 1;; first += kStepsAtOnce) {
    const std::vector<StepRecord> steps = store.loadSteps(run, first, kStepsAtOnce);
    for (const StepRecord& step : steps) times.push_back(stepTimes(step.measured, stages));
    if (static_cast<int>(steps.size()) < kStepsAtOnce) return times;
  }
}

}  // namespace

std::optional<std::string> whatDiffers(const RunRecord& a, const RunRecord& b) {
  const auto two = [](std::string_view what, const auto& x, const auto& y) { return fmt::format("{}: {} and {}", what, x, y); };
  const Plan &p = a.plan, &q = b.plan;
  if (p.modelName != q.modelName) return two("model", p.modelName, q.modelName);
  if (p.fingerprint != q.fingerprint) return fmt::format("model: two versions of {}", p.modelName);
  if (p.schedule.name != q.schedule.name) return two("schedule", p.schedule.name, q.schedule.name);
  if (worldSize(p) != worldSize(q)) return two("ranks", worldSize(p), worldSize(q));
  if (p.replicas != q.replicas) return two("replicas", p.replicas, q.replicas);
  if (p.schedule.microbatches != q.schedule.microbatches) return two("microbatches", p.schedule.microbatches, q.schedule.microbatches);
  if (p.batch != q.batch) return two("batch", p.batch, q.batch);
  if (!std::ranges::equal(p.partition.stages, q.partition.stages, {}, &StageSpec::begin, &StageSpec::begin)) return "splits";
  if (!std::ranges::equal(p.partition.stages, q.partition.stages, {}, &StageSpec::checkpoints, &StageSpec::checkpoints)) return "recompute";
  if (p.schedule.rows != q.schedule.rows) return fmt::format("order of actions in {}", p.schedule.name);
  if (howComputed(a) != howComputed(b)) return two("computed with", howComputed(a), howComputed(b));
  const auto nameOrUnknown = [](const auto& value) { return value ? nameOf(*value) : std::string_view("unknown"); };
  if (a.facts.optimizer != b.facts.optimizer) return two("optimizer", nameOrUnknown(a.facts.optimizer), nameOrUnknown(b.facts.optimizer));
  if (a.facts.backward != b.facts.backward) return two("backward", nameOrUnknown(a.facts.backward), nameOrUnknown(b.facts.backward));
  return std::nullopt;
}

ComparableRuns comparableRuns(const RunStore& store, const RunRecord& like) {
  ComparableRuns result;
  for (const RunSummary& summary : store.list()) {
    if (summary.state != RunState::Completed || summary.steps < 2) continue;
    const RunRecord run = store.load(summary.id);
    if (auto difference = whatDiffers(run, like)) {
      result.other = std::move(difference);
      continue;
    }
    result.ids.push_back(summary.id);
    result.times.push_back(timesOf(store, summary.id, static_cast<int>(like.plan.schedule.placement.stages())));
  }
  return result;
}

}  // namespace pw
