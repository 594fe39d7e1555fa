#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "simulator/job/job.h"
#include "simulator/job/measured.h"
#include "simulator/job/times_of.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/model_cut.h"

namespace pw {

/// Where a job comes from, and which of its steps.
struct JobOptions {
  std::vector<std::string> paths = {};  ///< a job (JSON), a plan, or traces of one job: files or folders; or else
  std::string store = {};               ///< a run store
  std::optional<RunId> run = {};        ///< of the store; nothing: the newest
  std::string steps = {};               ///< by their numbers: `5-8`, `12`; empty: all
  std::string patterns = {};            ///< path of a file of patterns for the names in traces; empty: none

  bool operator==(const JobOptions&) const = default;
};

/// Receives the bytes read of all; returns false to stop.
using JobProgress = std::function<bool(std::uint64_t done, std::uint64_t all)>;

/// The steps as measured (of a plan: as predicted). Of a run of ours at most the 200 steps after the first, which warms up. Throws
/// UsageError for what is not readable, and for a job (JSON), which has no spans. Nothing where `progress` stopped it.
[[nodiscard]] std::optional<MeasuredJob> measuredJob(const JobOptions& options, const JobProgress& progress = {});

/// The job of these options, recovered (`jobOf`) or read. Throws UsageError as the readers do. Nothing where `progress` stopped it.
[[nodiscard]] std::optional<Job> loadJob(const JobOptions& options, const JobProgress& progress = {});

/// The steps of that range, as of `JobOptions::steps`; empty: all. Throws UsageError where the job has none of them.
[[nodiscard]] Job withSteps(Job job, const std::string& steps);

/// The job that a model's file is, or the trace of it (`modelKindOf`); nothing for other models, and where the file is not there.
[[nodiscard]] std::shared_ptr<const Job> jobOfModel(const std::vector<std::string>& models);
/// The job as a model, of equal parts of its stages (`layersOf`), that this file is of.
[[nodiscard]] ModelGraph jobModel(const Job& job, const std::string& path);

/// The step that stands for a recording, by the names and durations of all (at least one): the median of those that do not warm up, which
/// names say (`warmsUp`); where none does, the first warms up, unless `afterWarmUp`. As of `medianPosition`.
[[nodiscard]] std::size_t typicalStep(const std::vector<std::string>& names, const std::vector<Ns>& durations, bool afterWarmUp = false);

/// A measured or predicted step to compare with another: the median one of a trace or run, the step of a plan, the usual one of a job. Of
/// several copies of a pipeline the slowest, for which the others wait.
struct StandingStep {
  std::string title;
  Trace trace;
  TimesOf times = TimesOf::Measured;
  Ns reductionWaits = 0;                ///< of all ranks, for others to reduce gradients with; cut off the trace's reductions
  std::vector<std::string> notes = {};  ///< of the import: what is missing, or was changed
  std::optional<ModelCut> cut = {};     ///< of a plan or run; nothing: not known
};
[[nodiscard]] StandingStep standingStep(const JobOptions& options);

}  // namespace pw
