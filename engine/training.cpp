#include "engine/training.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "backends/host/process_age.h"
#include "backends/host/process_memory.h"
#include "engine/batch_agreement.h"
#include "engine/checkpoint.h"
#include "engine/processes/failure.h"
#include "schedules/error.h"
#include "simulator/partition/parameter_order.h"

namespace pw {
namespace {

/// From the start of this process to its first compute action.
Ns firstActionAfterStart(const StepLog& step) {
  const auto first = std::ranges::find_if(step.spans, [](const Span& s) { return isCompute(s.kind); });
  const Ns age = processAge();
  return first == step.spans.end() || age == 0 ? 0 : age - (monotonicNow() - first->start);
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
std::vector<StepLog> gathered(StepGatherer& gatherer, StepLog own, int step, Executor& executor) {
  try {
    return gatherer.gather(std::move(own), executor.flights());
  } catch (const std::exception& e) {
    throw Error(executor.reportAfter(step, "when its times were collected", e));
  }
}

ExecutorOptions executorOptionsFor(const TrainOptions& options) {
  ExecutorOptions executor = options.executor;
  executor.sumLoss = executor.sumLoss || options.verify;
  return executor;
}

/// Of the numbers that a schedule of learning rates changes, and of whose they are.
std::uint64_t digestOf(const OptimizerSpec& o) {
  constexpr std::uint64_t kPrime = 0x100000001b3;
  std::uint64_t sum = 0;
  for (const double number : {o.learningRate, o.momentum, o.beta1, o.beta2, o.epsilon, o.alpha, o.weightDecay, o.nesterov ? 1.0 : 0.0})
    sum = (sum * kPrime) ^ std::hash<double>()(number);
  for (const OptimizerGroup& group : o.groups) {
    for (const double number : {group.learningRate, group.weightDecay}) sum = (sum * kPrime) ^ std::hash<double>()(number);
    for (const std::string& name : group.parameters) sum = (sum * kPrime) ^ std::hash<std::string>()(name);
  }
  return sum;
}

bool holdsBatch(const Plan& plan, const OwnStages& own) {
  return std::ranges::any_of(own.stages, [&](const auto& stage) { return needsBatch(plan, stage.first); });
}

}  // namespace

std::map<std::string, std::string> aliasesOf(const ModelGraph& graph) {
  std::map<std::string, std::string> aliases(graph.tiedAliases.begin(), graph.tiedAliases.end());
  std::map<std::string, std::string> first;
  for (const StateTensor& parameter : graph.parameters) {
    const auto [found, isNew] = first.emplace(storageOf(parameter), parameter.name);
    if (!isNew) aliases.emplace(parameter.name, found->second);
  }
  return aliases;
}

Training::Training(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                   const TorchBackend& torch)
    : graph_(graph),
      plan_(plan),
      options_(options),
      communicator_(communicator),
      torch_(torch),
      stageOptions_([&] {
        StageOptions stage = stageOptionsFor(plan, options, communicator);
        if (!options.verify) return stage;
        verifier_.emplace(graph, plan, stage, options.firstStep, options.deadline, torch);
        stage.observe = [this](const std::string& name, Microbatch m, DType dtype, Buffer value) {
          if (verifier_) verifier_->observe(name, m, dtype, value);
        };
        return stage;
      }()),
      own_(graph, plan, options_, stageOptions_, communicator, torch),
      executor_(plan, own_.stages, communicator, executorOptionsFor(options)),
      gatherer_(plan, communicator),
      history_(options.keep),
      optimizer_(options.stage.optimizer),
      needsBatch_(holdsBatch(plan, own_)),
      next_(options.firstStep),
      updates_(options.stage.updates) {
  if (!options.resumeNote.empty() && communicator.rank() == JobRank(0) && options.stage.tell) options.stage.tell(options.resumeNote);
  executor_.tellTo(options.live);
}

void Training::agree() {
  if (!options_.stage.data.feed || agreed_) return;
  agreeOnCall(
      fmt::format("step {}", next_),
      [&] {
        StepInput input{{}, digestOf(optimizer_)};
        if (needsBatch_) input.batch = torch_.checkBatch(graph_, plan_, options_.stage.data, next_);
        return input;
      },
      communicator_);
  agreed_ = true;
}

bool Training::step() {
  agree();
  agreed_ = false;
  const int step = next_;
  std::function<void()> compareGradients;  // none where nothing is compared: then holders of pieces need not exchange their sums
  if (verifier_) {
    compareGradients = [&] {
      for (const auto& [id, stage] : own_.stages) verifier_->compareGradients(*stage);
    };
  }
  StepLog done = executor_.step(step, compareGradients);
  if (verifier_) {
    verifier_->compareLoss(done.loss.value_or(0));
    log_.verification = verifier_->result();
    verifier_.reset();
  }
  if (step == options_.firstStep) log_.startToFirstAction = firstActionAfterStart(done);
  if (!done.skipped && !done.notFinite) ++updates_;
  if (options_.onStep) options_.onStep(step, done);
  if (executorOptionsFor(options_).sumLoss && communicator_.rank().value > 0)
    done.loss.reset();  // so that the logs' losses sum to the step's
  const bool ends = endsTraining(done, step, options_, communicator_);
  std::vector<StepLog> ranks = gathered(gatherer_, std::move(done), step, executor_);
  if (options_.onGathered && !ranks.empty()) options_.onGathered(step, std::move(ranks));
  if (!ends) ++next_;
  return !ends;
}

void Training::setOptimizer(const OptimizerSpec& optimizer) {
  for (const auto& [id, stage] : own_.stages) stage->setOptimizer(optimizer);
  optimizer_ = optimizer;
}

void Training::save(const std::string& path) {
  std::map<std::string, double> numbers{
      {"step", next_}, {"updates", updates_}, {"optimizer", static_cast<double>(numberOf(stateOf(optimizer_)))}};
  addSeed(numbers, options_.stage.seed);
  if (const auto scale = executor_.lossScale()) {
    numbers["loss_scale"] = scale->value();
    numbers["loss_scale_good_steps"] = scale->goodSteps();
  }
  saveCheckpoint(path, numbers, own_.state(), aliasesOf(graph_), communicator_,
                 OptimizerLayout{optimizer_, next_, updates_, parameterOrder(graph_)});
  if (communicator_.rank() == JobRank(0)) history_.add(path);
}

RankLog Training::log() const {
  RankLog log = log_;
  log.residentPeak = residentPeak();
  if (const auto scale = executor_.lossScale()) log.lossScale = scale->value();
  return log;
}

}  // namespace pw
