#include "engine/run/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "backends/host/gpu_inventory.h"
#include "backends/stages/synthetic_stage.h"
#include "engine/run/batch_stream.h"
#include "engine/training_files.h"
#include "schedules/check.h"
#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/loss_count.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

/// A loss over the whole batch exists when the last stage has done all its forwards.
bool forwardsComeFirst(const Schedule& schedule) {
  const Stage last(schedule.placement.stages() - 1);
  return std::ranges::all_of(schedule.rows, [&](const std::vector<Action>& row) {
    const auto ofLast = [&](bool backward) {
      return [=](const Action& a) { return a.stage == last && isCompute(a.kind) && isBackward(a.kind) == backward; };
    };
    return std::find_if(std::ranges::find_if(row, ofLast(true)), row.end(), ofLast(false)) == row.end();
  });
}

/// The options of the optimizer together, and what was not given as the plan accounts for it.
OptimizerSpec updateOf(const RunRequest& request, const OptimizerSpec& planned) {
  OptimizerSpec update = request.update;
  update.kind = request.optimizer.value_or(planned.kind);
  if (!request.optimizer) update.momentum = planned.momentum;
  if (request.momentum) update.momentum = *request.momentum;
  if (!request.betas.empty()) {
    update.beta1 = request.betas[0];
    update.beta2 = request.betas[1];
  }
  requireConsistent(update);
  if (update.decaySteps > 0 && update.decaySteps <= update.warmupSteps)
    throw UsageError("--decay-steps counts from the first step and must be more than --warmup.");
  return update;
}

std::string precisionWords(DType precision) {
  return precision == DType::Unknown ? "as traced" : fmt::format("in {}", precisionName(precision));
}

}  // namespace

RunSettings settle(const RunRequest& request, const Plan& plan) {
  RunSettings o;
  o.request = request;
  o.update = updateOf(request, plan.optimizer.value_or(PlannedOptimizer()).update);
  o.zero1 = request.zero1.value_or(plan.optimizer.value_or(PlannedOptimizer()).zero1);
  const Computing profiled = plan.profile.computing;  // of a cluster's: on CPUs, as traced
  o.transport = request.transport.value_or(defaultTransport(profiled.onGpu));
  o.computing.precision = request.precision.value_or(request.synthetic ? DType::Unknown : profiled.precision);
  if (o.computing.precision == DType::Float8)
    throw UsageError("The plan's costs are estimated for fp8, in which the engine does not compute; run it with --precision bf16.");
  o.computing.onGpu = factsOf(o.transport).onGpu;
  o.computing.tf32 = request.tf32.value_or(profiled.tf32 && o.computing.onGpu);
  o.computing.graphs = o.computing.onGpu && request.graphs.value_or(profiled.graphs || !profiled.onGpu);
  o.threads = request.threads > 0 ? request.threads : plan.profile.threads;
  return o;
}

std::string optimizerNote(const RunSettings& o, const Plan& plan) {
  if (!plan.optimizer || o.request.synthetic || o.request.evaluates) return "";
  const PlannedOptimizer& planned = *plan.optimizer;
  const bool sameShare = planned.zero1 == o.zero1 || stateCopies(o.update) == 0;
  if (stateCopies(planned.update) == stateCopies(o.update) && sameShare) return "";
  const auto words = [](const OptimizerSpec& update, bool zero1) {
    return fmt::format("{} ({} of each parameter{})", nameOf(update.kind), counted(stateCopies(update), "number"),
                       zero1 ? ", shared by replicas" : "");
  };
  return fmt::format("{} accounts for the state of {}, and this run has {}: its memory differs", o.request.plan,
                     words(planned.update, planned.zero1), words(o.update, o.zero1));
}

std::string costsNote(const RunSettings& o, const Plan& plan) {
  const Profile& profile = plan.profile;
  if (profile.nodes.empty() || o.request.synthetic) return "";
  if (profile.estimated && profile.machine.cores == 0) {  // for a cluster
    if (profile.computing.precision == o.computing.precision) return "";
    return fmt::format("{} was planned for computing {}, and this run computes {}: predicted times and memory are not its own",
                       o.request.plan, precisionWords(profile.computing.precision), precisionWords(o.computing.precision));
  }
  const bool sameThreads = o.computing.onGpu || o.threads == profile.threads;
  const auto by = [&](int threads) { return sameThreads ? "" : " by " + counted(threads, "thread"); };
  if (profile.computing == o.computing && sameThreads) return "";
  return fmt::format("{} was planned from times {}{}, and this run computes {}{}: predicted times are not its own", o.request.plan,
                     computingText(profile.computing), by(profile.threads), computingText(o.computing), by(o.threads));
}

void refuseWhatCannotRun(const RunSettings& o, const Plan& plan) {
  const RunRequest& asked = o.request;
  requireRunnable("The schedule of " + asked.plan, plan.schedule);
  if (!trains(plan.schedule) && !asked.evaluates)
    throw UsageError(
        fmt::format("The schedule of {} has no backward, so there is nothing to train; use another schedule, or --eval.", asked.plan));
  if (asked.lossOver == LossScope::WholeBatch && !asked.evaluates && !forwardsComeFirst(plan.schedule)) {
    throw UsageError(
        fmt::format("{} runs backwards of the last stage before all its forwards, so there is no loss over the whole batch; plan with "
                    "--schedule gpipe, or use --loss-over microbatch.",
                    asked.plan));
  }
  if (o.computing.onGpu) {
    const std::string why = whyUnusable(gpuInventory(), 0);
    const std::string option = fmt::format("--backend {}", nameOf(o.transport));
    const std::string who = plan.profile.computing.onGpu ? fmt::format("{} was planned on GPUs, and {}", asked.plan, option) : option;
    if (!why.empty()) throw UsageError(fmt::format("{} runs on GPUs. {} Without one, use --backend ucx.", who, why));
  } else if (o.computing.tf32 || asked.graphs) {
    throw UsageError(fmt::format("{} is for GPUs; add --backend nccl, or omit it.", o.computing.tf32 ? "--tf32"
                                                                                    : *asked.graphs  ? "--graphs"
                                                                                                     : "--no-graphs"));
  }
  if (asked.synthetic && (asked.verify || asked.evaluates || !asked.save.empty() || !asked.resume.empty() || asked.data != "synthetic" ||
                          o.computing.precision != DType::Unknown || asked.initRandom || asked.masked || asked.skipNonFinite ||
                          asked.findNan || asked.lossOver != LossScope::PerMicrobatch || !asked.loss.empty() || !asked.lossCount.empty())) {
    throw UsageError("--synthetic computes nothing, so options about data, loss, precision and checkpoints do not go with it; omit them.");
  }
  refuseWhatIsNotDynamic(o, plan);
  if (asked.verify && o.computing.precision != DType::Unknown) {
    throw UsageError(fmt::format("--verify compares bits that {} rounds away; omit it, or add --precision traced.",
                                 precisionName(o.computing.precision)));
  }
  if (const TransportFacts facts = factsOf(o.transport); asked.order == Order::Ready && !facts.tellsArrivals && worldSize(plan) > 1)
    throw UsageError(fmt::format("{} cannot tell which message came first, so --order ready needs --backend ucx.", facts.title));
  if (asked.evaluates && asked.masked)
    throw UsageError("--masked is for comparing a training step, and --eval trains nothing; leave one of them out.");
  if (asked.evaluates && (asked.verify || !asked.save.empty()))
    throw UsageError("--eval trains nothing, so --verify and --save do not go with it.");
  if (asked.evaluates && (asked.skipNonFinite || asked.findNan))
    throw UsageError("--skip-nonfinite and --find-nan are for training, and --eval trains nothing; omit them.");
  if (asked.evaluates && (!asked.store.empty() || !asked.log.empty()))
    throw UsageError("--eval measures no steps, so --store and --log do not go with it; omit them.");
  if (!asked.outputs.empty() && !asked.evaluates) throw UsageError("--outputs belongs to --eval; add it, or omit --outputs.");
  if (asked.keep > 0 && !isHistory(asked.save))
    throw UsageError("--keep is about a history of checkpoints; name them by step: --save 'checkpoint-{step}.pt'.");
  if (asked.resetOptimizer && asked.resume.empty())
    throw UsageError("--reset-optimizer belongs to --resume FILE; add it, or omit --reset-optimizer.");
  if (asked.saveEvery > 0 && asked.save.empty()) throw UsageError("--save-every needs --save FILE.");
}

std::string lossNote(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (!o.request.lossCount.empty()) {
    static_cast<void>(parseLossCount(graph, plan.loss, o.request.lossCount));
    return "";
  }
  const int microbatches = plan.replicas * plan.schedule.microbatches;
  return microbatches > 1 ? lossBias(graph, plan.loss) : "";
}

std::string decayNote(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (o.request.evaluates || graph.outputs.empty()) return "";
  std::vector<std::string> names = unreachedParameters(graph, graph.outputs[outputOf(graph, plan.loss)]);
  std::erase_if(names, [&](const std::string& name) { return ofGroup(o.update, groupOf(o.update, name)).weightDecay == 0; });
  if (names.empty()) return "";
  return fmt::format(
      "the loss gives {}{} no gradient: weight decay changes it all the same, unlike torch.optim, which leaves it out; turn its "
      "requires_grad off",
      names.front(), names.size() > 1 ? fmt::format(" and {} more", counted(names.size() - 1, "parameter")) : "");
}

void refuseSharesOfComplexNumbers(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (!o.zero1 || (plan.replicas == 1 && !plan.schedule.placement.bidirectional())) return;
  for (const StateTensor& parameter : graph.parameters) {
    const auto& tensor = graph.value(parameter.value).tensor;
    if (tensor && (tensor->dtype == DType::ComplexHalf || tensor->dtype == DType::ComplexFloat || tensor->dtype == DType::ComplexDouble)) {
      throw UsageError(fmt::format(
          "--zero1 cannot spread the optimizer's state of complex parameters such as {} over ranks; give --no-zero1.", parameter.name));
    }
  }
}

std::chrono::milliseconds deadlineOf(const RunRequest& request) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(request.timeoutSeconds * 1000));
}

TrainOptions trainOptions(const RunSettings& o, const Plan& plan) {
  const RunRequest& asked = o.request;
  TrainOptions options;
  options.steps = asked.steps;
  options.verify = asked.verify;
  options.deadline = deadlineOf(asked);
  options.stage.seed = asked.seed;
  options.stage.optimizer = o.update;
  options.stage.initRandom = asked.initRandom;
  options.stage.data = {asked.data == "synthetic" || namesFunction(asked.data) ? "" : asked.data, asked.lossOver, asked.masked,
                        asked.lossCount};
  options.stage.data.feed = asked.feed;
  options.stage.resume = asked.resume;
  options.stage.resetOptimizer = asked.resetOptimizer;
  options.stage.graphs = o.computing.graphs && !asked.findNan;  // the values of a recorded stage cannot be observed
  options.stage.findNan = asked.findNan;
  options.stage.keepBuffers = asked.skipNonFinite;
  options.stage.precision = o.computing.precision;
  if (asked.synthetic) options.synthetic = syntheticHost();
  options.executor = {.order = asked.order,
                      .shardOptimizer = o.zero1,
                      .clipNorm = asked.clipNorm,
                      .scaleLoss = o.computing.precision == DType::Float16 && !asked.evaluates,
                      .checkFinite = !asked.synthetic,
                      .skipNonFinite = asked.skipNonFinite,
                      .sumLoss = plan.replicas > 1 || plan.schedule.placement.bidirectional() || !asked.log.empty(),
                      .flightFiles = flightFiles(asked),
                      .deadline = options.deadline};
  options.save = asked.save;
  options.saveEvery = asked.saveEvery;
  options.keep = asked.keep;
  if (!asked.resume.empty()) {
    const Resumption resumption = resumptionOf(asked.resume, o.update, asked.resetOptimizer || asked.evaluates);
    options.firstStep = resumption.firstStep;
    options.resumeNote = resumption.note;
    options.executor.lossScale = resumption.lossScale.value_or(LossScale::kInitial);
  }
  return options;
}

std::string flightFiles(const RunRequest& request) { return request.store.empty() ? "flight-rank-" : request.store + ".flight-rank-"; }

}  // namespace pw
