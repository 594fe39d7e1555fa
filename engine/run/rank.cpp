#include "engine/run/rank.h"

#include <fmt/format.h>

#include <utility>

#include "backends/pt2/record.h"
#include "backends/resources/resources.h"
#include "engine/run/batch_stream.h"
#include "engine/run/connection.h"
#include "engine/run/loss_log.h"
#include "engine/training_files.h"
#include "engine/worker.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/plan_fits.h"

namespace pw {
namespace {

/// The result on rank 0, nothing on the others.
std::optional<RunResult> trainAndRecord(const RankTask& task, ConnectedRank rank, Communicator& communicator, StoredRun& stored,
                                        const RunObserver& observer) {
  const RunSettings& o = task.settings;
  const Plan& plan = task.plan;
  const JobRank self = task.environment.rank;
  TrainOptions& options = rank.options;
  // The rank that shows progress: rank 0 if it knows the loss, otherwise the rank of the last stage.
  const bool shows =
      self == (options.executor.sumLoss ? JobRank(0) : replicasOf(plan.schedule).jobRank(0, plan.schedule.placement.rankOfStage.back()));
  StepProgress show;
  if (shows && observer.progress) show = observer.progress();
  std::optional<LossLog> log;
  if (!o.request.log.empty() && self.value == 0) log.emplace(o.request.log, !o.request.resume.empty());
  options.onStep = [&](int step, const StepLog& done) {
    if (show) show(step + 1 - options.firstStep, o.request.steps, fmt::format("loss {:.4f}", done.loss.value_or(0)));
    if (log) log->add(step, done, learningRateAt(o.update, step));
  };
  std::optional<TrainingRecord> record;  // what has ended is kept also when the training fails
  if (self == JobRank(0)) record.emplace(o, plan, options.firstStep, stored, observer.warn);
  options.onGathered = [&](int step, std::vector<StepLog> ranks) { record->add(step, std::move(ranks)); };
  Plan trained = task.own;
  if (o.request.synthetic)
    addOptimizerState(trained.costs, stateCopies(o.update), 1);  // of what a rank updates its stages take their share
  const std::vector<RankLog> logs = gatherRankLogs(trainRank(task.graph, trained, options, communicator, rank.torch), communicator);
  if (logs.empty()) return std::nullopt;
  RunResult result = record->finish(logs);
  result.saved =
      o.request.save.empty() || result.savedSteps == 0 ? "" : checkpointPath(o.request.save, result.firstStep + result.savedSteps);
  if (!o.request.synthetic) result.exported = readExportRecord(task.graph);
  return result;
}

/// Whether this rank takes inputs or targets, or computes the whole model to compare.
bool takesBatches(const RunSettings& o, const Plan& plan, const RankEnvironment& environment) {
  const Rank rank = replicasOf(plan.schedule).rank(environment.rank);
  for (std::size_t s = 0; s < plan.schedule.placement.stages(); ++s) {
    if (plan.schedule.placement.holds(rank, Stage(s)) && (o.request.verify || needsBatch(plan, Stage(s)))) return true;
  }
  return false;
}

/// Of --data module:function; its process begins while the ranks connect.
std::shared_ptr<const BatchFeed> feedOf(const RunSettings& o, const Plan& plan, const ModelGraph& graph, const RankEnvironment& environment,
                                        const TrainOptions& options) {
  if (!takesBatches(o, plan, environment)) return std::make_shared<BatchFeed>(BatchFeed{o.request.data, {}});
  // Before the other ranks lose patience with this one: the batch is the cause.
  StreamRequest request{o.request.data, options.firstStep, o.seed, {}, options.deadline * 3 / 4};
  for (const ValueId input : graph.inputs) request.inputs.push_back(graph.value(input).name);
  return streamBatches(request);
}

}  // namespace

RankOutcome runRank(const RunSettings& o, const Plan& plan, const RankEnvironment& environment, RankContact& contact, StoredRun& stored,
                    const RunObserver& observer) {
  const ModelGraph graph = o.request.synthetic ? ModelGraph() : loadModel(plan.modelFiles);
  if (!o.request.synthetic) requireFits(plan, graph);
  refuseForModel(o, plan, graph);
  if (o.request.evaluates) refuseToEvaluate(o, readExportRecord(graph));
  if (!o.request.synthetic && environment.rank.value == 0 && environment.statusFd < 0) {
    for (const std::string& note : {lossNote(o, plan, graph), decayNote(o, plan, graph)}) {
      if (!note.empty()) observer.warn(note);
    }
  }
  const Plan own = ofReplica(plan, replicasOf(plan.schedule).replica(environment.rank));
  TrainOptions options = trainOptions(o, own);
  options.executor.flightJob = jobMark(environment);
  options.stage.tell = [&observer, rank = environment.rank](const std::string& what) {
    observer.warn(fmt::format("rank {} {}", rank.value, what));
  };
  if (namesFunction(o.request.data)) options.stage.data.feed = feedOf(o, own, graph, environment, options);
  bindToCores(environment);  // after the process of --data has begun, whose workers have all cores
  const std::optional<Meeting> notYet;
  const RankTask task{o, plan, own, graph, environment, notYet};
  ConnectedRank rank = connectRank(task, std::move(options), contact, observer);
  std::optional<LiveWriter> live;
  if (!o.request.live.empty()) rank.options.live = &live.emplace(o.request.live, environment.rank);
  if (o.request.evaluates) return {std::nullopt, evaluateRank(o, graph, own, rank.options, *contact.communicator, rank.torch)};
  auto trained = trainAndRecord(task, std::move(rank), *contact.communicator, stored, observer);
  if (live && live->hasStopped())
    observer.warn(fmt::format("the steps of rank {} are not all in {}: it could not be written on, or is larger than 1 GiB",
                              environment.rank.value, o.request.live));
  return {std::move(trained), std::nullopt};
}

}  // namespace pw
