#include "engine/run/rank.h"

#include <fmt/format.h>

#include <utility>

#include "backends/messages/in_memory_communicator.h"
#include "backends/pt2/record.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "backends/torch/wheel.h"
#include "engine/processes/connect.h"
#include "engine/processes/process.h"
#include "engine/run/loss_log.h"
#include "engine/run/start.h"
#include "engine/training_files.h"
#include "engine/worker.h"
#include "simulator/plan/stage_costs.h"

namespace pw {
namespace {

/// Meets the other ranks, loads LibTorch and connects; fills what the training needs of both.
const TorchBackend& connectRank(const RunSettings& o, const Plan& plan, const ModelGraph& graph, const RankEnvironment& environment,
                                std::unique_ptr<Communicator>& communicator, bool& isInTouch, const RunObserver& observer,
                                TrainOptions& options) {
  Rendezvous meeting;
  meeting.deadline = options.deadline;
  KeyValueStore store;
  if (environment.worldSize > 1) {
    meeting = rendezvousOf(environment, options.deadline);
    if (environment.statusFd >= 0 && factsOf(*o.transport).waitsCanBeEnded)
      meeting.jobFailed = &listenForFailure();                                   // else the signal ends the process
    if (environment.storeIsElsewhere) torchBackend().prepareProcess(o.threads);  // LibTorch then speaks to that store
    store = meetOthers(environment, meeting, fieldsOf(o, plan, graph), isInTouch);
  }
  const TorchBackend& torch = torchBackend();
  if (environment.worldSize == 1 || !environment.storeIsElsewhere) torch.prepareProcess(o.threads);
  if (!o.synthetic) loadLibraries(plan.libraries);
  if (o.computing.onGpu) {
    GpuRank rank = connectGpus(environment, meeting, store, o.computing.tf32);
    communicator = std::move(rank.communicator);
    options.stage.device = rank.gpu.device;
    if (o.synthetic) options.synthetic = SyntheticDevice{rank.gpu.device, rank.gpu.device->spin, nullptr};
    if (environment.rank.value == 0 && !rank.gpu.note.empty()) observer.warn(rank.gpu.note);
  } else if (environment.worldSize > 1) {
    communicator = connectRanks(*o.transport, meeting, store, torch);
  } else {
    communicator = std::move(inMemoryCommunicators(1, options.deadline).front());
  }
  connectCalls(o, plan, meeting, store, torch, *communicator, options);
  store = {};
  reportStartUp(environment, StartUp::Done);
  return torch;
}

/// The result on rank 0, nothing on the others.
std::optional<RunResult> trainAndRecord(const RunSettings& o, const Plan& plan, const ModelGraph& graph, const RankEnvironment& environment,
                                        TrainOptions options, Communicator& communicator, const TorchBackend& torch, StoredRun& stored,
                                        const RunObserver& observer) {
  // The rank that shows progress: rank 0 if it knows the loss, otherwise the rank of the last stage.
  const bool shows =
      environment.rank ==
      (options.executor.sumLoss ? JobRank(0) : replicasOf(plan.schedule).jobRank(0, plan.schedule.placement.rankOfStage.back()));
  StepProgress show;
  if (shows && observer.progress) show = observer.progress();
  std::optional<LossLog> log;
  if (!o.log.empty() && environment.rank.value == 0) log.emplace(o.log, !o.resume.empty());
  options.onStep = [&](int step, const StepLog& done) {
    if (show) show(step + 1 - options.firstStep, o.steps, fmt::format("loss {:.4f}", done.loss.value_or(0)));
    if (log) log->add(step, done, learningRateAt(o.update, step));
  };
  std::optional<TrainingRecord> record;  // what has ended is kept also when the training fails
  if (environment.rank == JobRank(0)) record.emplace(o, plan, options.firstStep, stored, observer.warn);
  options.onGathered = [&](int step, std::vector<StepLog> ranks) { record->add(step, std::move(ranks)); };
  Plan trained = plan;
  if (o.synthetic) addOptimizerState(trained.costs, stateCopies(o.update), 1);  // of what a rank updates its stages take their share
  const std::vector<RankLog> logs = gatherRankLogs(trainRank(graph, trained, options, communicator, torch), communicator);
  if (logs.empty()) return std::nullopt;
  RunResult result = record->finish(logs);
  result.saved = o.save.empty() || result.savedSteps == 0 ? "" : checkpointPath(o.save, result.firstStep + result.savedSteps);
  if (!o.synthetic) result.exported = readExportRecord(graph.files);
  return result;
}

}  // namespace

RankOutcome runRank(const RunSettings& o, const Plan& plan, const RankEnvironment& environment, std::unique_ptr<Communicator>& communicator,
                    StoredRun& stored, bool& isInTouch, const RunObserver& observer) {
  const ModelGraph graph = o.synthetic ? ModelGraph() : loadModel(plan.modelFiles);
  if (!o.synthetic) requireFits(plan, graph);
  refuseSharesOfComplexNumbers(o, plan, graph);
  if (!o.synthetic && environment.rank.value == 0 && environment.statusFd < 0) {
    if (const std::string note = lossNote(o, plan, graph); !note.empty()) observer.warn(note);
  }
  bindToCores(environment);
  TrainOptions options = trainOptions(o, plan);
  options.stage.tell = [&observer, rank = environment.rank](const std::string& what) {
    observer.warn(fmt::format("rank {} {}", rank.value, what));
  };
  const TorchBackend& torch = connectRank(o, plan, graph, environment, communicator, isInTouch, observer, options);
  std::optional<LiveWriter> live;
  if (!o.live.empty()) options.live = &live.emplace(o.live, environment.rank);
  if (o.evaluates) return {std::nullopt, evaluateRank(o, graph, plan, options, *communicator, torch)};
  return {trainAndRecord(o, plan, graph, environment, options, *communicator, torch, stored, observer), std::nullopt};
}

}  // namespace pw
