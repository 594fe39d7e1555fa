#include "engine/evaluation.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "backends/messages/message_memory.h"
#include "backends/messages/tags.h"
#include "engine/batch_agreement.h"
#include "engine/executor.h"
#include "engine/own_stages.h"
#include "engine/training.h"
#include "simulator/model/batch.h"

namespace pw {
namespace {

/// The ranks compare their batches of this step, where these come from outside.
void agreeOnBatch(const ModelGraph& graph, const Plan& plan, const DataOptions& data, int step, const OwnStages& own,
                  Communicator& communicator, const TorchBackend& torch) {
  const bool needs = std::ranges::any_of(own.stages, [&](const auto& stage) { return needsBatch(plan, stage.first); });
  agreeOnCall(
      fmt::format("step {}", step),
      [&] {
        StepInput input;
        if (needs) input.batch = torch.checkBatch(graph, plan, data, step);
        return input;
      },
      communicator);
}

/// Brings the outputs of all microbatches from the last stages to rank 0, for `result`.
class OutputGathering {
 public:
  OutputGathering(const ModelGraph& graph, const Plan& plan, bool masked, const OwnStages& own, Communicator& communicator,
                  Evaluation& result)
      : graph_(graph), plan_(plan), masked_(masked), own_(own), communicator_(communicator), result_(result) {}

  void run() {
    requireTags(kOutputTags, std::uint64_t{graph_.outputs.size()} * sizes_.size());
    for (std::size_t output = 0; output < graph_.outputs.size(); ++output) {
      if (graph_.value(graph_.outputs[output]).tensor) gather(output);
    }
    for (const auto request : requests_) communicator_.wait(request);
  }

 private:
  void gather(std::size_t output) {
    const TensorMeta& tensor = *graph_.value(graph_.outputs[output]).tensor;
    ModelOutput merged{graph_.outputNames[output], tensor.dtype, std::nullopt, {}};
    if (const auto axis = batchAxis(graph_, graph_.outputs[output])) {
      merged.dimension = axis->dimension;
      merged.outer = axis->outer;
    }
    for (int m = 0; m < plan_.replicas * plan_.schedule.microbatches; ++m) gather(output, tensor, m, merged);
    if (communicator_.rank() == JobRank(0)) result_.outputs.push_back(std::move(merged));
  }

  /// `m` counts the microbatches of all replicas.
  void gather(std::size_t output, const TensorMeta& tensor, int m, ModelOutput& merged) {
    const int microbatches = plan_.schedule.microbatches;
    const Stage last(plan_.partition.stages.size() - 1);
    const Microbatch local(m % microbatches);
    const JobRank from = replicasOf(plan_.schedule).jobRank(m / microbatches, plan_.schedule.placement.rankOf(last, local));
    const auto tag = kOutputTags.first + static_cast<std::uint32_t>(output) * static_cast<std::uint32_t>(plan_.replicas * microbatches) +
                     static_cast<std::uint32_t>(m);
    HeldBuffer part;
    if (from == communicator_.rank()) part = own_.stages.at(last)->takeModelOutput(output, local);
    if (communicator_.rank() == JobRank(0)) {
      if (from != JobRank(0)) part = received(from, tag, tensor, m);
      merged.parts.push_back({shapeOf(tensor, bindBatch(graph_, masked_ ? plan_.batch : samplesOf(m))), part.buffer});
      result_.kept.push_back(std::move(part));
    } else if (from == communicator_.rank()) {
      requests_.push_back(communicator_.send(JobRank(0), tag, part.buffer));
      sending_->push_back(std::move(part));
    }
  }

  HeldBuffer received(JobRank from, std::uint32_t tag, const TensorMeta& tensor, int m) {
    const auto bytes = std::make_shared<std::vector<std::byte>>(static_cast<std::size_t>(bytesOf(tensor, bindBatch(graph_, samplesOf(m)))));
    HeldBuffer part{{bytes->data(), bytes->size()}, bytes};
    communicator_.wait(communicator_.receive(from, tag, part.buffer));
    return part;
  }

  [[nodiscard]] std::int64_t samplesOf(int m) const { return sizes_[static_cast<std::size_t>(m)]; }

  const ModelGraph& graph_;
  const Plan& plan_;
  const bool masked_;
  const OwnStages& own_;
  Communicator& communicator_;
  Evaluation& result_;
  const std::vector<std::int64_t> sizes_ = microbatchSizes(plan_.batch, plan_.replicas* plan_.schedule.microbatches);
  MessageMemory<std::vector<HeldBuffer>> sending_{communicator_};
  std::vector<Communicator::Request> requests_;
};

}  // namespace

struct EvaluationRun::Parts {
  const ModelGraph& graph;
  const Plan& plan;
  TrainOptions options;
  Communicator& communicator;
  const TorchBackend& torch;
  OwnStages own;
  Executor executor;

  static ExecutorOptions executorOptions(const TrainOptions& options) {
    ExecutorOptions of = options.executor;
    of.sumLoss = true;
    return of;
  }

  Parts(const ModelGraph& g, const Plan& p, const TrainOptions& o, Communicator& c, const TorchBackend& t)
      : graph(g),
        plan(p),
        options(o),
        communicator(c),
        torch(t),
        own(graph, plan, options, stageOptionsFor(plan, options, communicator), communicator, torch),
        executor(plan, own.stages, communicator, executorOptions(options)) {
    executor.tellTo(options.live);
  }
};

EvaluationRun::EvaluationRun(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                             const TorchBackend& torch)
    : parts_(std::make_unique<Parts>(graph, plan, options, communicator, torch)) {}

EvaluationRun::~EvaluationRun() = default;

Evaluation EvaluationRun::step(int number, bool withOutputs) {
  Parts& p = *parts_;
  if (p.options.stage.data.feed) agreeOnBatch(p.graph, p.plan, p.options.stage.data, number, p.own, p.communicator, p.torch);
  Evaluation result;
  result.loss = p.executor.evaluate(number).loss.value_or(0);
  if (withOutputs) OutputGathering(p.graph, p.plan, p.options.stage.data.masked, p.own, p.communicator, result).run();
  return result;
}

}  // namespace pw
