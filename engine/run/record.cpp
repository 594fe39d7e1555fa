#include "engine/run/record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <functional>
#include <utility>

#include "backends/resources/resources.h"
#include "backends/store/trace_blob.h"
#include "engine/run/batch_stream.h"
#include "schedules/error.h"
#include "schedules/job_rank.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

constexpr std::chrono::seconds kLockWait{20};  // of one who writes while it trains: others write for milliseconds

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// The prediction of all replicas, side by side, with the optimizer's state.
Trace predictedOf(const Plan& plan, const std::function<CostTable(CostTable)>& withState) {
  Trace all;
  const Replicas numbers = replicasOf(plan.schedule);
  Trace one;
  for (int d = 0; d < plan.replicas; ++d) {
    if (d == 0 || plan.cuts) one = simulate(plan.schedule, withState(replicaCosts(plan, d)));
    for (Span span : one.spans) {
      span.rank = numbers.inTrace(d, span.rank);
      span.peer = numbers.inTrace(d, span.peer);
      all.spans.push_back(span);
    }
    for (MemorySample sample : one.memory) {
      sample.rank = numbers.inTrace(d, sample.rank);
      all.memory.push_back(sample);
    }
  }
  all.ranks = worldSize(plan);
  normalize(all);
  return all;
}

/// Nothing where the plan is of no model.
std::optional<CostSource> costSourceOf(const Plan& plan) {
  if (plan.profile.nodes.empty()) return std::nullopt;
  return plan.profile.estimated ? CostSource::Estimated : CostSource::Measured;
}

RunRecord recordOf(const Plan& plan, const RunSettings& o, const std::string& startedAt) {
  RunRecord record;
  record.startedAt = startedAt;
  record.transport = o.transport;
  record.facts = {.precision = o.computing.precision,
                  .tf32 = o.computing.tf32,
                  .synthetic = o.request.synthetic,
                  .optimizer = o.update.kind,
                  .backward = o.request.backward,
                  .costs = costSourceOf(plan)};
  record.seed = o.seed;
  record.machine = o.computing.onGpu ? gpuMachine(0) : thisMachine();
  record.plan = plan;
  // A file is mapped, and GPUs get each microbatch as it is used: then batches are not in the memory that is counted.
  const bool isElsewhere = o.computing.onGpu || (o.request.data != "synthetic" && !namesFunction(o.request.data));
  const auto withState = [&](CostTable costs) {
    for (StageCost& stage : costs.stages) stage.dataBytes = isElsewhere ? Bytes(0) : stage.dataBytes;
    addOptimizerState(costs, stateCopies(o.update), optimizerShards(o.zero1, plan.replicas, plan.schedule.placement));
    return costs;
  };
  record.plan.costs = withState(plan.costs);
  record.predicted = predictedOf(plan, withState);
  return record;
}

}  // namespace

RunStore& StoredRun::Access::open() {
  if (!store) store = std::make_unique<RunStore>(path, RunStore::Mode::ReadWrite, kLockWait);
  return *store;
}

StoredRun::StoredRun(const RunSettings& settings, const Plan& plan) : settings_(settings), plan_(plan), startedAt_(now()) {
  id_ = settings.request.recordedAs;  // rank 0 of such a run continues it
  if (!settings.request.store.empty()) access_ = std::make_shared<Access>(Access{settings.request.store});
}

const RunRecord& StoredRun::record() {
  if (!record_) record_ = recordOf(plan_, settings_, startedAt_);
  return *record_;
}

void StoredRun::begin() {
  if (!access_ || id_) return;
  RunRecord unfinished = record();
  unfinished.state = RunState::Unfinished;
  id_ = access_->open().add(unfinished);
  access_->store.reset();  // the launcher starts processes next
}

std::function<void(std::span<const StepRecord>)> StoredRun::writer() const {
  return [access = access_, id = id_](std::span<const StepRecord> steps) {
    if (access && id) access->open().append(*id, steps);
  };
}

void StoredRun::end(const std::string& failure) {
  if (access_ && id_) access_->open().end(*id_, failure);
}

void StoredRun::fail(const std::string& failure) noexcept {
  if (!access_) return;
  try {
    if (id_) return access_->open().end(*id_, failure);
    RunRecord failed = record();
    failed.failure = failure;
    id_ = access_->open().add(failed);
  } catch (const std::exception&) {  // the job ends with the failure that is to be stored: it is reported, and a store that cannot be
                                     // written must not take its place
  }
}

/// Shared with the recorder's thread, which may hang in `write`.
struct TrainingRecord::Kept {
  std::function<void(std::span<const StepRecord>)> write;
  std::function<void(const std::string&)> warn;
  StepFigureFile figures{};
  std::string notStored{};   ///< why steps are no longer stored
  bool figuresLost = false;  ///< no more of them can be kept

  void add(std::span<const StepRecord> steps) {
    if (notStored.empty()) {
      try {
        write(steps);
      } catch (const Error& problem) {  // a training is worth more than its record
        notStored = problem.what();
        warn(fmt::format("the training continues, but its steps from {} on are not stored: {}", steps.front().step, notStored));
      }
    }
    for (const StepRecord& step : steps) addFigures(step);
  }

  void addFigures(const StepRecord& step) {
    if (figuresLost) return;
    try {
      figures.add({step.step, step.loss, step.gradientNorm, durationOf(step.measured), metricsOf(step.measured)});
    } catch (const Error& problem) {
      figuresLost = true;
      warn(fmt::format("the training continues, but its report ends before step {}: {}", step.step, problem.what()));
    }
  }
};

namespace {

/// The run as it is before its first step, stored.
RunResult begunResult(const RunSettings& settings, int firstStep, StoredRun& stored) {
  stored.begin();
  RunResult result;
  result.record = stored.record();
  result.id = stored.id();
  result.firstStep = firstStep;
  result.countsSkipped = settings.request.skipNonFinite;
  return result;
}

}  // namespace

TrainingRecord::TrainingRecord(const RunSettings& settings, const Plan& plan, int firstStep, StoredRun& stored,
                               std::function<void(const std::string&)> warn)
    : settings_(settings),
      stored_(stored),
      result_(begunResult(settings, firstStep, stored)),
      kept_(std::make_shared<Kept>(stored.writer(), warn)),
      recorder_(
          plan.schedule.rows.size(), [kept = kept_](std::span<const StepRecord> steps) { kept->add(steps); },
          [warn](const std::string& problem) { warn(fmt::format("the training continues without recording further steps: {}", problem)); },
          {.name = settings.request.store.empty() ? "The folder of temporary files" : settings.request.store}) {}

TrainingRecord::~TrainingRecord() {
  recorder_.close();
  if (recorder_.hangs()) stored_.giveUp();
}

void TrainingRecord::add(int step, std::vector<StepLog> ranks) {
  const int done = step - result_.firstStep;
  if (const std::string what = nonFinite(ranks); !what.empty() && !settings_.request.skipNonFinite) {
    result_.savedSteps = settings_.request.saveEvery > 0 ? done / settings_.request.saveEvery * settings_.request.saveEvery : 0;
    result_.record.failure = nonFiniteSentence(step, what, settings_.request.findNan);
    return;
  }
  result_.savedSteps = done + 1;
  const StepLog& first = ranks.front();
  if (first.skipped) ++result_.skippedSteps;
  if (first.skipped && first.notFinite) ++result_.nonFiniteSteps;
  recorder_.add(step, std::move(ranks));
}

RunResult TrainingRecord::finish(const std::vector<RankLog>& ranks) {
  recorder_.finish();
  result_.figures = std::move(kept_->figures);
  result_.lossScale = ranks.front().lossScale;
  result_.countsSkipped = result_.countsSkipped || result_.lossScale.has_value();
  for (const RankLog& rank : ranks) {
    result_.residentPeak.push_back(rank.residentPeak);
    result_.startToFirstAction.push_back(rank.startToFirstAction);
    if (settings_.request.verify)
      result_.verification = result_.verification ? joinVerifications(*result_.verification, rank.verification) : rank.verification;
  }
  std::string& failure = result_.record.failure;
  if (result_.verification && !result_.verification->equal && failure.empty()) {
    failure = (result_.verification->notFinite ? "The first step cannot be verified: " : "The first step is not that of one rank: ") +
              result_.verification->firstDifference;
  }
  if (failure.empty()) failure = kept_->notStored;
  if (kept_->notStored.empty())
    stored_.end(failure);
  else
    result_.id.reset();
  return std::move(result_);
}

}  // namespace pw
