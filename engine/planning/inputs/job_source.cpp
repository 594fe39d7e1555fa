#include "engine/planning/inputs/job_source.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

#include "backends/host/files.h"
#include "backends/host/paths.h"
#include "backends/resources/file_kind.h"
#include "backends/resources/resources.h"
#include "backends/store/run_store.h"
#include "backends/traces/import.h"
#include "schedules/error.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/job_json.h"
#include "simulator/job/recover.h"
#include "simulator/job/reduction_groups.h"
#include "simulator/job/replay_job.h"
#include "simulator/plan/plan.h"
#include "simulator/report/metrics.h"
#include "simulator/step/simulate.h"
#include "simulator/text/number_text.h"
#include "simulator/trace/reductions.h"

namespace pw {
namespace {

constexpr int kMostRunSteps = 200;

/// First and last number of `5-8`.
std::pair<std::int64_t, std::int64_t> rangeOf(const std::string& steps) {
  const std::string_view text = steps;
  const std::size_t dash = std::min(text.find('-'), text.size());
  const auto first = numberOf<std::int64_t>(text.substr(0, dash));
  const auto last = dash == text.size() ? first : numberOf<std::int64_t>(text.substr(dash + 1));
  if (!first || !last || *first < 0 || *last < *first)
    throw UsageError(fmt::format("--steps \"{}\" is not a range of steps; write for example --steps 5-8", steps));
  return {*first, *last};
}

MeasuredJob ofPlan(const std::string& path) {
  const Plan plan = loadPlan(path);
  MeasuredJob measured;
  measured.name = plan.modelName.empty() ? std::filesystem::path(path).stem().string() : plan.modelName;
  measured.steps.push_back({"predicted step", simulate(plan.schedule, plan.costs), {}});
  measured.times = TimesOf::Predicted;
  measured.notes.push_back("The step is predicted, of one replica.");
  measured.schedule = plan.schedule;
  return measured;
}

MeasuredJob ofStore(const JobOptions& options) {
  const RunStore store(options.store, RunStore::Mode::ReadOnly);
  const RunRecord run = store.load(options.run);
  MeasuredJob measured;
  measured.name = fmt::format("run {} ({})", run.id.value, run.plan.modelName);
  measured.replicas = run.plan.replicas;
  measured.times = timesOf(run.facts);
  if (run.facts.synthetic) {
    measured.notes.push_back("The steps are rehearsed: with --synthetic actions took as long as the plan says, and nothing was computed.");
  }
  const int count = store.stepCount(run.id), first = count > 1 ? 1 : 0;
  for (StepRecord& step : store.loadSteps(run.id, first, kMostRunSteps))
    measured.steps.push_back({fmt::format("step {}", step.step), std::move(step.measured), {}});
  if (measured.steps.empty()) throw UsageError(fmt::format("run {} of {} has no step; run it again", run.id.value, options.store));
  if (count - first > kMostRunSteps) measured.notes.push_back(fmt::format("Only the first {} of {} steps are used.", kMostRunSteps, count));
  return measured;
}

/// `Plan`, `Job`, `RunStore`, or else `Trace`.
FileKind sourceKindOf(const JobOptions& options) {
  if (!options.store.empty()) return FileKind::RunStore;
  if (options.paths.size() > 1) return FileKind::Trace;
  const FileKind kind = fileKindOf(options.paths.front());
  return kind == FileKind::Plan || kind == FileKind::Job ? kind : FileKind::Trace;
}

/// Where the model is cut; nothing: not known, of traces.
std::optional<ModelCut> cutOfSource(const JobOptions& options) {
  const FileKind kind = sourceKindOf(options);
  if (kind == FileKind::RunStore) return cutOf(RunStore(options.store, RunStore::Mode::ReadOnly).load(options.run).plan);
  return kind == FileKind::Plan ? cutOf(loadPlan(options.paths.front())) : std::nullopt;
}

std::optional<MeasuredJob> ofTraces(const JobOptions& options, const JobProgress& progress) {
  std::optional<ImportedTrace> imported = importTrace(options.paths, progress, {options.patterns});
  return imported ? std::optional(measuredOf(*std::move(imported))) : std::nullopt;
}

void requireOneSource(const JobOptions& options) {
  if (options.paths.empty() == options.store.empty())
    throw UsageError("name a trace, a job or a plan, or a run store with --store, and only one of these");
  if (options.paths.size() > 1) {
    for (const std::string& path : options.paths) {
      if (const FileKind kind = fileKindOf(path); kind == FileKind::Plan || kind == FileKind::Job)
        throw UsageError(fmt::format("{} is {}, which stands alone; give it by itself, or only traces of one job", path, nameOf(kind)));
    }
  } else if (options.paths.size() == 1 && !isFolder(options.paths.front())) {
    requireKind(options.paths.front(), {FileKind::Trace, FileKind::Job, FileKind::Plan});
  }
  if (!options.patterns.empty() && sourceKindOf(options) != FileKind::Trace)
    throw UsageError("--patterns is for names in traces; a job, a plan or a run has none, omit it");
}

}  // namespace

std::shared_ptr<const Job> jobOfModel(const std::vector<std::string>& models) {
  const FileKind kind = modelKindOf(models);
  const bool isJob = kind == FileKind::Job || kind == FileKind::Trace;
  return isJob ? std::make_shared<const Job>(*loadJob({.paths = models})) : nullptr;
}

ModelGraph jobModel(const Job& job, const std::string& path) { return chainOf(layersOf(job), absolutePath(path)); }

std::optional<MeasuredJob> measuredJob(const JobOptions& options, const JobProgress& progress) {
  requireOneSource(options);
  const FileKind kind = sourceKindOf(options);
  if (kind == FileKind::RunStore) return ofStore(options);
  if (kind == FileKind::Plan) return ofPlan(options.paths.front());
  if (kind == FileKind::Job)
    throw UsageError(fmt::format("{} is a job, which holds times and no spans; give the trace it is of", options.paths.front()));
  return ofTraces(options, progress);
}

namespace {

/// What the import left out is often why no step is whole.
Job jobWithReasons(const MeasuredJob& measured) {
  constexpr std::size_t kShown = 6;
  try {
    return jobOf(measured);
  } catch (const UsageError& problem) {
    std::string text = problem.what();
    if (!measured.notes.empty()) text += ". Of the import:";
    for (std::size_t i = 0; i < std::min(kShown, measured.notes.size()); ++i) text += " " + measured.notes[i];
    if (measured.notes.size() > kShown) text += fmt::format(" {} more notes.", measured.notes.size() - kShown);
    throw UsageError(text);
  }
}

}  // namespace

std::optional<Job> loadJob(const JobOptions& options, const JobProgress& progress) {
  requireOneSource(options);
  std::optional<Job> job;
  if (sourceKindOf(options) == FileKind::Job) {
    job = parseJob(readFile(options.paths.front()), options.paths.front());
  } else {
    std::optional<MeasuredJob> measured = measuredJob(options, progress);
    if (!measured) return std::nullopt;
    job = jobWithReasons(*measured);
  }
  return withSteps(*std::move(job), options.steps);
}

Job withSteps(Job job, const std::string& steps) {
  if (steps.empty()) return job;
  const auto [from, to] = rangeOf(steps);
  return withSteps(std::move(job), from, to);
}

std::size_t typicalStep(const std::vector<std::string>& names, const std::vector<Ns>& durations, bool afterWarmUp) {
  std::vector<std::size_t> usual;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!warmsUp(names[i])) usual.push_back(i);
  }
  if (usual.empty() || (usual.size() == names.size() && !afterWarmUp)) return medianPosition(durations);
  std::vector<Ns> known{0};  // in the place of the one that warms up
  for (const std::size_t i : usual) known.push_back(durations[i]);
  return usual[medianPosition(known) - 1];
}

StandingStep standingStep(const JobOptions& options) {
  requireOneSource(options);
  if (sourceKindOf(options) == FileKind::Job) {
    const Job job = *loadJob(options);
    const JobShape shape(job);
    JobReplay replay;
    const TypicalTimes typical = typicalTimes(shape, job);
    replayJob(shape, job, typical.times, replay);
    return {fmt::format("{}, its usual step, replayed of {}", job.name, stepsText(job)),
            stepOf(shape, job, typical.times, replay, slowestCopy(shape, job, typical.times)), TimesOf::Measured, 0, job.notes};
  }
  MeasuredJob measured = *measuredJob(options);
  std::vector<std::string> names;
  std::vector<Ns> durations;
  for (const MeasuredStep& step : measured.steps) {
    names.push_back(step.name);
    durations.push_back(metricsOf(step.trace).step);
  }
  MeasuredStep& median = measured.steps[typicalStep(names, durations, !options.store.empty())];
  const Ns waits =
      cutReductionWaits(median.trace, reductionGroups(median.operations, median.trace.ranks, measured.replicas, measured.tensor));
  return {fmt::format("{}, {}{}", measured.name, median.name,
                      measured.times == TimesOf::Predicted ? "" : fmt::format(" ({})", nameOf(measured.times))),
          slowestPipeline(measured, median),
          measured.times,
          waits,
          std::move(measured.notes),
          cutOfSource(options)};
}

}  // namespace pw
