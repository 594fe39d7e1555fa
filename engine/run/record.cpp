#include "engine/run/record.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "backends/resources/resources.h"
#include "backends/store/trace_blob.h"
#include "schedules/error.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

constexpr int kLockWaitMs = 20'000;  // of one who writes while it trains: others write for milliseconds

std::string now() { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr))); }

/// The prediction of one pipeline for all of them.
Trace ofAllReplicas(const Trace& one, int replicas) {
  Trace all = one;
  const Replicas numbers{one.ranks};
  for (int d = 1; d < replicas; ++d) {
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
  all.ranks = one.ranks * replicas;
  normalize(all);
  return all;
}

/// How many ranks share a stage's optimizer state.
int shardsOf(const RunSettings& o, const Plan& plan) {
  return o.zero1 ? plan.replicas * (plan.schedule.placement.bidirectional() ? 2 : 1) : 1;
}

/// Nothing where the plan is of no model.
std::optional<CostSource> costSourceOf(const Plan& plan) {
  if (plan.profile.nodes.empty()) return std::nullopt;
  return plan.profile.estimated ? CostSource::Estimated : CostSource::Measured;
}

RunRecord recordOf(const Plan& plan, const RunSettings& o, const std::string& startedAt) {
  RunRecord record;
  record.startedAt = startedAt;
  record.backend = nameOf(o.transport);
  record.facts = {o.computing.precision, o.computing.tf32, o.request.synthetic, o.update.kind, o.request.backward, costSourceOf(plan)};
  record.seed = o.request.seed;
  record.machine = o.computing.onGpu ? gpuMachine(0) : thisMachine();
  record.plan = plan;
  addOptimizerState(record.plan.costs, stateCopies(o.update), shardsOf(o, plan));
  record.predicted = ofAllReplicas(simulate(plan.schedule, record.plan.costs), plan.replicas);
  return record;
}

}  // namespace

StoredRun::StoredRun(const RunSettings& settings, const Plan& plan) : settings_(settings), plan_(plan), startedAt_(now()) {
  if (settings.request.recordedAs > 0) id_ = RunId(settings.request.recordedAs);
}

const RunRecord& StoredRun::record() {
  if (!record_) record_ = recordOf(plan_, settings_, startedAt_);
  return *record_;
}

RunStore& StoredRun::store() {
  if (!store_) store_ = std::make_unique<RunStore>(settings_.request.store, RunStore::Mode::ReadWrite, kLockWaitMs);
  return *store_;
}

void StoredRun::begin() {
  if (settings_.request.store.empty() || id_) return;
  RunRecord unfinished = record();
  unfinished.state = RunState::Unfinished;
  id_ = store().add(unfinished);
  store_.reset();  // the launcher starts processes next
}

void StoredRun::append(std::span<const StepRecord> steps) {
  if (id_) store().append(*id_, steps);
}

void StoredRun::end(const std::string& failure) {
  if (id_) store().end(*id_, failure);
}

void StoredRun::fail(const std::string& failure) noexcept {
  if (settings_.request.store.empty()) return;
  try {
    if (id_) return store().end(*id_, failure);
    RunRecord failed = record();
    failed.failure = failure;
    id_ = store().add(failed);
  } catch (const std::exception&) {}
}

TrainingRecord::TrainingRecord(const RunSettings& settings, const Plan& plan, int firstStep, StoredRun& stored,
                               std::function<void(const std::string&)> warn)
    : settings_(settings),
      stored_(stored),
      warn_(std::move(warn)),
      recorder_(
          plan.schedule.rows.size(), [this](std::span<const StepRecord> steps) { keep(steps); },
          [this](const std::string& problem) {
            warn_(fmt::format("the training continues without recording further steps: {}", problem));
          }) {
  stored_.begin();
  result_.record = stored_.record();
  result_.id = stored_.id();
  result_.firstStep = firstStep;
  result_.countsSkipped = settings.request.skipNonFinite;
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

/// On the recorder's thread.
void TrainingRecord::keep(std::span<const StepRecord> steps) {
  if (notStored_.empty()) {
    try {
      stored_.append(steps);
    } catch (const Error& problem) {  // a training is worth more than its record
      notStored_ = problem.what();
      warn_(fmt::format("the training continues, but its steps from {} on are not stored: {}", steps.front().step, notStored_));
    }
  }
  for (const StepRecord& step : steps)
    result_.figures.add({step.step, step.loss, step.gradientNorm, durationOf(step.measured), metricsOf(step.measured)});
}

RunResult TrainingRecord::finish(const std::vector<RankLog>& ranks) {
  recorder_.finish();
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
  if (failure.empty()) failure = notStored_;
  if (notStored_.empty()) stored_.end(failure);
  return std::move(result_);
}

}  // namespace pw
