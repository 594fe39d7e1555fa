#include "engine/worker.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "backends/messages/local_address.h"
#include "engine/batch_agreement.h"
#include "engine/own_stages.h"
#include "engine/training.h"
#include "simulator/model/batch.h"

namespace pw {
namespace {

constexpr std::uint32_t kOutputTag = 0x60000000;

}  // namespace

RankLog trainRank(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                  const TorchBackend& torch) {
  Training training(graph, plan, options, communicator, torch);
  for (int i = 0; i < options.steps && training.step(); ++i) {
    const bool last = i + 1 == options.steps;
    if (!options.save.empty() && (last || (options.saveEvery > 0 && (i + 1) % options.saveEvery == 0))) training.save();
  }
  return training.log();
}

Evaluation evaluate(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                    const TorchBackend& torch) {
  OwnStages own(graph, plan, options, stageOptionsFor(plan, options, communicator), communicator, torch);
  ExecutorOptions executorOptions = options.executor;
  executorOptions.sumLoss = true;
  Executor executor(plan, own.stages, communicator, executorOptions);
  executor.tellTo(options.live);
  if (options.stage.data.feed) {
    const bool needs = std::ranges::any_of(own.stages, [&](const auto& stage) { return needsBatch(plan, stage.first); });
    agreeOnCall(
        fmt::format("step {}", options.firstStep),
        [&] {
          StepInput input;
          if (needs) input.batch = torch.checkBatch(graph, plan, options.stage.data, options.firstStep);
          return input;
        },
        communicator);
  }
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
