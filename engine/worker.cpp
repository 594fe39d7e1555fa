#include "engine/worker.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "backends/messages/local_address.h"
#include "backends/store/trace_blob.h"
#include "engine/checkpoint.h"
#include "engine/training_files.h"
#include "schedules/error.h"
#include "simulator/model/batch.h"
#include "simulator/plan/parameter_order.h"

namespace pw {
namespace {

constexpr std::uint32_t kSizeTag = 0x7FFF0001, kPayloadTag = 0x7FFF0002, kOutputTag = 0x60000000;

std::string pack(const RankLog& log) {
  std::string bytes;
  const auto append = [&](const auto& value) { bytes.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  const Verification& v = log.verification;
  append(v.equal);
  append(v.lossDifference);
  append(v.boundaryDifference);
  append(v.gradientDifference);
  append(v.position);
  append(v.notFinite);
  append(v.firstDifference.size());
  bytes += v.firstDifference;
  append(log.residentPeak);
  append(log.startToFirstAction);
  append(log.lossScale.has_value());
  append(log.lossScale.value_or(0));
  append(log.steps.size());
  for (const StepLog& step : log.steps) {
    for (const auto& number : {step.loss, step.gradientNorm, step.lossScale}) {
      append(number.has_value());
      append(number.value_or(0));
    }
    append(step.skipped);
    append(step.notFinite.value_or(Rank(-1)));
    append(step.whatNotFinite.size());
    bytes += step.whatNotFinite;
    const std::string blob = toBlob({1 << 20, step.spans, step.memory});  // ranks: an upper bound, a log names peers
    append(blob.size());
    bytes += blob;
  }
  return bytes;
}

/// Reads what `pack` wrote on a rank of the same build.
RankLog unpack(const std::string& bytes, Rank rank) {
  std::size_t at = 0;
  const auto takeBytes = [&](std::size_t n) {
    if (n > bytes.size() - at) throw Error(fmt::format("Rank {} sent a broken log; run all ranks with the same build.", rank.value));
    at += n;
    return bytes.substr(at - n, n);
  };
  const auto take = [&](auto& value) { std::memcpy(&value, takeBytes(sizeof(value)).data(), sizeof(value)); };
  const auto takeOptional = [&](std::optional<double>& number) {
    bool known = false;
    double value = 0;
    take(known);
    take(value);
    if (known) number = value;
  };
  RankLog log;
  std::size_t size = 0;
  Verification& v = log.verification;
  take(v.equal);
  take(v.lossDifference);
  take(v.boundaryDifference);
  take(v.gradientDifference);
  take(v.position);
  take(v.notFinite);
  take(size);
  v.firstDifference = takeBytes(size);
  take(log.residentPeak);
  take(log.startToFirstAction);
  takeOptional(log.lossScale);
  take(size);
  for (std::size_t i = 0, steps = size; i < steps; ++i) {
    StepLog step;
    for (auto* number : {&step.loss, &step.gradientNorm, &step.lossScale}) takeOptional(*number);
    take(step.skipped);
    Rank first(-1);
    take(first);
    if (first.value >= 0) step.notFinite = first;
    take(size);
    step.whatNotFinite = takeBytes(size);
    take(size);
    Trace trace = parseBlob(takeBytes(size), fmt::format("the log of rank {}", rank.value));
    step.spans = std::move(trace.spans);
    step.memory = std::move(trace.memory);
    log.steps.push_back(std::move(step));
  }
  return log;
}

Buffer bufferOf(std::string& bytes) { return {reinterpret_cast<std::byte*>(bytes.data()), bytes.size()}; }

template <class T>
Buffer bufferOf(T& value) {
  return {reinterpret_cast<std::byte*>(&value), sizeof(value)};
}

StageOptions stageOptionsFor(const Plan& plan, const TrainOptions& options, Communicator& communicator) {
  StageOptions stage = options.stage;
  stage.replica = communicator.rank().value / static_cast<int>(plan.schedule.rows.size());
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
    const Rank rank(communicator.rank().value % static_cast<int>(plan.schedule.rows.size()));
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
  if (communicator.rank() == Rank(0)) history.add(path);
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
  if (!options.resumeNote.empty() && communicator.rank() == Rank(0) && options.stage.tell) options.stage.tell(options.resumeNote);
  ExecutorOptions executorOptions = options.executor;
  executorOptions.sumLoss = executorOptions.sumLoss || options.verify;
  Executor executor(plan, own.stages, communicator, executorOptions);
  executor.tellTo(options.live);
  log.clocks = compareClocks(communicator);
  CheckpointHistory history(options.keep);
  for (int i = 0; i < options.steps; ++i) {
    const int step = options.firstStep + i;
    std::function<void()> compareGradients;  // none where nothing is compared: then holders of pieces need not exchange their sums
    if (verifier) {
      compareGradients = [&] {
        for (const auto& [id, stage] : own.stages) verifier->compareGradients(*stage);
      };
    }
    log.steps.push_back(executor.step(step, compareGradients));
    if (verifier) {
      verifier->compareLoss(log.steps.back().loss.value_or(0));
      log.verification = verifier->result();
      verifier.reset();
    }
    if (i == 0) log.startToFirstAction = firstActionAfterStart(log.steps.front());
    if (options.onStep) options.onStep(step, log.steps.back());
    if (executorOptions.sumLoss && communicator.rank().value > 0)
      log.steps.back().loss.reset();  // so that the logs' losses sum to the step's
    if (endsTraining(log.steps.back(), step, options, communicator)) break;
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
      const Rank from(m / microbatches * static_cast<int>(plan.schedule.rows.size()) + plan.schedule.placement.rankOf(last, local).value);
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
        requests.push_back(communicator.send(Rank(0), tag, part.buffer));
        sending.push_back(std::move(part));
      }
    }
    if (communicator.rank().value == 0) result.outputs.push_back(std::move(merged));
  }
  for (const auto request : requests) communicator.wait(request);
  return result;
}

std::vector<RankLog> gather(const RankLog& own, Communicator& communicator) {
  const std::vector<ClockReading> clocks = compareClocks(communicator);
  if (communicator.rank().value != 0) {
    std::string bytes = pack(own);
    std::uint64_t size = bytes.size();
    communicator.wait(communicator.send(Rank(0), kSizeTag, bufferOf(size)));
    communicator.wait(communicator.send(Rank(0), kPayloadTag, bufferOf(bytes)));
    communicator.barrier();
    return {};
  }
  std::vector<RankLog> logs{own};
  for (int r = 1; r < communicator.size(); ++r) {
    const Rank peer(r);
    std::uint64_t size = 0;
    communicator.wait(communicator.receive(peer, kSizeTag, bufferOf(size)));
    std::string bytes(size, '\0');
    communicator.wait(communicator.receive(peer, kPayloadTag, bufferOf(bytes)));
    RankLog log = unpack(bytes, peer);
    const ClockReading& last = clocks.at(peer.index());
    const ClockReading& first = own.clocks.empty() ? last : own.clocks.at(peer.index());
    for (StepLog& step : log.steps) {
      for (Span& span : step.spans) {
        span.start = onOurClock(span.start, first, last);
        span.end = onOurClock(span.end, first, last);
      }
      for (MemorySample& sample : step.memory) sample.time = onOurClock(sample.time, first, last);
    }
    logs.push_back(std::move(log));
  }
  communicator.barrier();
  return logs;
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
