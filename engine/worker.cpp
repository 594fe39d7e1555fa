#include "engine/worker.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "backends/messages/local_address.h"
#include "engine/checkpoint.h"
#include "engine/gathering.h"
#include "engine/processes/failure.h"
#include "engine/training_files.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/plan/parameter_order.h"

namespace pw {
namespace {

constexpr std::uint32_t kOutputTag = 0x60000000;

StageOptions stageOptionsFor(const Plan& plan, const TrainOptions& options, Communicator& communicator) {
  StageOptions stage = options.stage;
  stage.replica = replicasOf(plan.schedule).replica(communicator.rank());
  // GPU operators are enqueued and done later; those of a backward are enqueued by a thread of LibTorch.
  if (stage.device == nullptr) stage.betweenOperators = [&communicator] { communicator.progress(); };
  return stage;
}

/// The stages of this rank, in either direction of a bidirectional placement.
struct OwnStages {
  std::vector<std::unique_ptr<StageModule>> modules;
  std::map<Stage, StageModule*> stages;

  OwnStages(const ModelGraph& graph, const Plan& plan, const TrainOptions& train, const StageOptions& options, Communicator& communicator,
            const TorchBackend& torch) {
    const Rank rank = replicasOf(plan.schedule).rank(communicator.rank());
    for (std::size_t s = 0; s < plan.schedule.placement.stages(); ++s) {
      if (!plan.schedule.placement.holds(rank, Stage(s))) continue;
      modules.push_back(train.synthetic ? makeSyntheticStage(plan, Stage(s), *train.synthetic, options.betweenOperators)
                                        : torch.makeTracedStage(graph, plan, Stage(s), options));
      stages[Stage(s)] = modules.back().get();
    }
  }
};

/// Names of one storage beside the first.
std::map<std::string, std::string> aliasesOf(const ModelGraph& graph) {
  std::map<std::string, std::string> aliases(graph.tiedAliases.begin(), graph.tiedAliases.end());
  std::map<std::string, std::string> first;
  for (const StateTensor& parameter : graph.parameters) {
    const auto [found, isNew] = first.emplace(storageOf(parameter), parameter.name);
    if (!isNew) aliases.emplace(parameter.name, found->second);
  }
  return aliases;
}

void save(const ModelGraph& graph, const OwnStages& own, const TrainOptions& options, int stepsDone, std::optional<double> lossScale,
          CheckpointHistory& history, Communicator& communicator) {
  std::vector<StatePiece> pieces;
  for (const auto& [id, stage] : own.stages) {
    for (StatePiece& piece : stage->state()) pieces.push_back(std::move(piece));
  }
  std::map<std::string, double> numbers{{"step", stepsDone},
                                        {"seed", static_cast<double>(options.stage.seed)},
                                        {"optimizer", static_cast<double>(stateOf(options.stage.optimizer))}};
  if (lossScale) numbers["loss_scale"] = *lossScale;
  const std::string path = checkpointPath(options.save, stepsDone);
  saveCheckpoint(path, numbers, pieces, aliasesOf(graph), communicator,
                 OptimizerLayout{options.stage.optimizer, stepsDone, parameterOrder(graph)});
  if (communicator.rank() == JobRank(0)) history.add(path);
}

/// VmHWM: the most that was resident since this program began.
Bytes residentPeak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return static_cast<Bytes>(std::atoll(line.c_str() + 6)) * 1024;
  }
  return 0;
}

/// When this process began, on the monotonic clock [to 10 ms]; proc(5): field 22 of stat, in clock ticks.
Ns processStart() {
  std::ifstream stat("/proc/self/stat");
  std::string text;
  std::getline(stat, text);
  const std::size_t name = text.rfind(')');  // the program's name may hold spaces
  std::istringstream fields(name == std::string::npos ? "" : text.substr(name + 2));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  return static_cast<Ns>(std::atoll(field.c_str())) * (1'000'000'000 / sysconf(_SC_CLK_TCK));
}

/// From the start of this process to its first compute action.
Ns firstActionAfterStart(const StepLog& step) {
  const auto first = std::ranges::find_if(step.spans, [](const Span& s) { return isCompute(s.kind); });
  return first == step.spans.end() ? 0 : first->start - processStart();
}

/// Called after a step with non-finite numbers: true unless such steps are skipped.
bool endsTraining(const StepLog& done, int step, const TrainOptions& options, Communicator& communicator) {
  if (!done.notFinite) return false;
  if (!options.executor.skipNonFinite) return true;
  if (*done.notFinite == communicator.rank() && options.stage.tell)
    options.stage.tell(fmt::format("skips the update of step {}, on all ranks: {}", step, done.whatNotFinite));
  return false;
}

/// The step's logs of all ranks, on rank 0; a failure names the step as one within it does.
std::vector<StepLog> gathered(StepGatherer& gatherer, StepLog own, int step, JobRank rank) {
  try {
    return gatherer.gather(std::move(own));
  } catch (const std::exception& e) {
    throw Error(fmt::format("Rank {} failed in step {}, when its times were collected: {}", rank.value, step, causeOf(e)));
  }
}

}  // namespace

RankLog trainRank(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                  const TorchBackend& torch) {
  StageOptions stageOptions = stageOptionsFor(plan, options, communicator);
  RankLog log;
  std::optional<Verifier> verifier;
  if (options.verify) {
    verifier.emplace(graph, plan, stageOptions, options.firstStep, options.deadline, torch);
    stageOptions.observe = [&](const std::string& name, Microbatch m, DType dtype, Buffer value) {
      if (verifier) verifier->observe(name, m, dtype, value);
    };
  }
  OwnStages own(graph, plan, options, stageOptions, communicator, torch);
  if (!options.resumeNote.empty() && communicator.rank() == JobRank(0) && options.stage.tell) options.stage.tell(options.resumeNote);
  ExecutorOptions executorOptions = options.executor;
  executorOptions.sumLoss = executorOptions.sumLoss || options.verify;
  Executor executor(plan, own.stages, communicator, executorOptions);
  executor.tellTo(options.live);
  StepGatherer gatherer(plan, communicator);
  CheckpointHistory history(options.keep);
  for (int i = 0; i < options.steps; ++i) {
    const int step = options.firstStep + i;
    std::function<void()> compareGradients;  // none where nothing is compared: then holders of pieces need not exchange their sums
    if (verifier) {
      compareGradients = [&] {
        for (const auto& [id, stage] : own.stages) verifier->compareGradients(*stage);
      };
    }
    StepLog done = executor.step(step, compareGradients);
    if (verifier) {
      verifier->compareLoss(done.loss.value_or(0));
      log.verification = verifier->result();
      verifier.reset();
    }
    if (i == 0) log.startToFirstAction = firstActionAfterStart(done);
    if (options.onStep) options.onStep(step, done);
    if (executorOptions.sumLoss && communicator.rank().value > 0) done.loss.reset();  // so that the logs' losses sum to the step's
    const bool ends = endsTraining(done, step, options, communicator);
    std::vector<StepLog> ranks = gathered(gatherer, std::move(done), step, communicator.rank());
    if (options.onGathered && !ranks.empty()) options.onGathered(step, std::move(ranks));
    if (ends) break;
    const bool last = i + 1 == options.steps;
    if (!options.save.empty() && (last || (options.saveEvery > 0 && (i + 1) % options.saveEvery == 0)))
      save(graph, own, options, step + 1, executor.lossScale(), history, communicator);
  }
  log.residentPeak = residentPeak();
  log.lossScale = executor.lossScale();
  return log;
}

Evaluation evaluate(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                    const TorchBackend& torch) {
  OwnStages own(graph, plan, options, stageOptionsFor(plan, options, communicator), communicator, torch);
  ExecutorOptions executorOptions = options.executor;
  executorOptions.sumLoss = true;
  Executor executor(plan, own.stages, communicator, executorOptions);
  executor.tellTo(options.live);
  Evaluation result;
  result.loss = executor.evaluate(options.firstStep).loss.value_or(0);
  const Stage last(plan.partition.stages.size() - 1);
  const int microbatches = plan.schedule.microbatches;
  const auto sizes = microbatchSizes(plan.batch, plan.replicas * microbatches);
  std::vector<HeldBuffer> sending;
  std::vector<Communicator::Request> requests;
  for (std::size_t output = 0; output < graph.outputs.size(); ++output) {
    const Value& value = graph.value(graph.outputs[output]);
    ModelOutput merged{graph.outputNames[output], value.tensor ? value.tensor->dtype : DType::Unknown, std::nullopt, {}};
    if (!value.tensor) continue;
    if (const auto axis = batchAxis(graph, graph.outputs[output])) {
      merged.dimension = axis->dimension;
      merged.outer = axis->outer;
    }
    for (int m = 0; m < plan.replicas * microbatches; ++m) {
      const Microbatch local(m % microbatches);
      const JobRank from = replicasOf(plan.schedule).jobRank(m / microbatches, plan.schedule.placement.rankOf(last, local));
      const auto tag = kOutputTag + static_cast<std::uint32_t>(output) * static_cast<std::uint32_t>(plan.replicas * microbatches) +
                       static_cast<std::uint32_t>(m);
      HeldBuffer part;
      if (from == communicator.rank()) part = own.stages.at(last)->takeModelOutput(output, local);
      const auto shape =
          shapeOf(*value.tensor, bindBatch(graph, options.stage.data.masked ? plan.batch : sizes[static_cast<std::size_t>(m)]));
      if (communicator.rank().value == 0) {
        if (from.value != 0) {
          const auto bytes = std::make_shared<std::vector<std::byte>>(
              static_cast<std::size_t>(bytesOf(*value.tensor, bindBatch(graph, sizes[static_cast<std::size_t>(m)]))));
          part = {{bytes->data(), bytes->size()}, bytes};
          communicator.wait(communicator.receive(from, tag, part.buffer));
        }
        merged.parts.push_back({shape, part.buffer});
        result.kept.push_back(std::move(part));
      } else if (from == communicator.rank()) {
        requests.push_back(communicator.send(JobRank(0), tag, part.buffer));
        sending.push_back(std::move(part));
      }
    }
    if (communicator.rank().value == 0) result.outputs.push_back(std::move(merged));
  }
  for (const auto request : requests) communicator.wait(request);
  return result;
}

void bindToCores(const RankEnvironment& environment) {
  const int ranks = environment.localSize, rank = environment.localRank;
  if (environment.startedBy == StartedBy::Slurm) return;  // it gives each task its cores
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return;
  const int cores = CPU_COUNT(&allowed);
  if (ranks < 1 || rank < 0 || rank >= ranks || ranks > cores) return;
  cpu_set_t share;
  CPU_ZERO(&share);
  int seen = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &allowed)) continue;
    if (seen >= rank * cores / ranks && seen < (rank + 1) * cores / ranks) CPU_SET(core, &share);
    ++seen;
  }
  sched_setaffinity(0, sizeof(share), &share);  // a refusal costs speed only
}

Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline) {
  Rendezvous meeting;
  meeting.rank = environment.rank;
  meeting.size = environment.worldSize;
  meeting.masterAddress = environment.masterAddress;
  meeting.masterPort = environment.masterPort;
  meeting.token = environment.token;
  meeting.listenFd = environment.listenFd;
  meeting.storeIsElsewhere = environment.storeIsElsewhere;
  meeting.oneHost = environment.oneHost;
  if (!meeting.oneHost) static_cast<void>(localAddressTowards(meeting.masterAddress));  // a name that cannot be found says so now
  meeting.deadline = deadline;
  return meeting;
}

}  // namespace pw
