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
#include "simulator/model/state_changes.h"
#include "simulator/plan/possible.h"
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
  if (update.finalRate != 0 && update.decaySteps <= 0)
    throw UsageError("--final-rate is what remains of the learning rate at --decay-steps; add --decay-steps, or omit it.");
  return update;
}

/// Whether a stage that holds this parameter runs a forward between another microbatch's forward and the end of its backward.
bool interleavesForwards(const Plan& plan, const ModelGraph& graph, const StateTensor& parameter) {
  const auto holds = [&](Stage stage) {
    return std::ranges::any_of(plan.partition.stages[stage.index()].parameters, [&](std::size_t p) {
      return graph.parameters[p].value == parameter.value || storageOf(graph.parameters[p]) == storageOf(parameter);
    });
  };
  for (const std::vector<Action>& row : plan.schedule.rows) {
    for (auto last = row.begin(); last != row.end(); ++last) {
      if (!isCompute(last->kind) || !isBackward(last->kind) || !holds(last->stage)) continue;
      const auto forward = [&](bool same) {
        return [=](const Action& a) {
          return a.kind == ActionKind::Forward && a.stage == last->stage && (a.microbatch == last->microbatch) == same;
        };
      };
      if (std::find_if(std::find_if(row.begin(), last, forward(true)), last, forward(false)) != last) return true;
    }
  }
  return false;
}

/// Whether anything of how parameters are updated is given.
bool hasUpdate(const RunRequest& request) {
  return request.optimizer || request.momentum || request.zero1 || !request.betas.empty() || request.clipNorm > 0 ||
         request.update != OptimizerSpec();
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
  const bool continues = !request.resume.empty() && !request.resetOptimizer && !request.evaluates;
  o.seed = request.seed ? *request.seed : continues ? seedIn(request.resume).value_or(0) : 0;
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
  const RunRequest& request = o.request;
  requireRunnable("The schedule of " + request.plan, plan.schedule);
  if (!trains(plan.schedule) && !request.evaluates)
    throw UsageError(
        fmt::format("The schedule of {} has no backward, so there is nothing to train; use another schedule, or --eval.", request.plan));
  if (request.lossOver == LossScope::WholeBatch && !request.evaluates && !forwardsComeFirst(plan.schedule)) {
    throw UsageError(
        fmt::format("{} runs backwards of the last stage before all its forwards, so there is no loss over the whole batch; plan with "
                    "--schedule gpipe, or use --loss-over microbatch.",
                    request.plan));
  }
  if (o.computing.onGpu) {
    const std::string why = whyUnusable(gpuInventory(), 0);
    const std::string option = fmt::format("--backend {}", nameOf(o.transport));
    const std::string who = plan.profile.computing.onGpu ? fmt::format("{} was planned on GPUs, and {}", request.plan, option) : option;
    if (!why.empty()) throw UsageError(fmt::format("{} runs on GPUs. {} Without one, use --backend ucx.", who, why));
  } else if (o.computing.tf32 || request.graphs) {
    throw UsageError(fmt::format("{} is for GPUs; add --backend nccl, or omit it.", o.computing.tf32  ? "--tf32"
                                                                                    : *request.graphs ? "--graphs"
                                                                                                      : "--no-graphs"));
  }
  if (request.synthetic &&
      (request.verify || request.evaluates || !request.save.empty() || !request.resume.empty() || request.data != "synthetic" ||
       o.computing.precision != DType::Unknown || request.initRandom || request.masked || request.skipNonFinite || request.findNan ||
       request.lossOver != LossScope::PerMicrobatch || !request.loss.empty() || !request.lossCount.empty())) {
    throw UsageError("--synthetic computes nothing, so options about data, loss, precision and checkpoints do not go with it; omit them.");
  }
  refuseWhatIsNotDynamic(o, plan);
  if (request.verify && o.computing.precision != DType::Unknown) {
    throw UsageError(fmt::format("--verify compares bits that {} rounds away; omit it, or add --precision traced.",
                                 precisionName(o.computing.precision)));
  }
  if (const TransportFacts facts = factsOf(o.transport); request.order == Order::Ready && !facts.tellsArrivals && worldSize(plan) > 1)
    throw UsageError(fmt::format("{} cannot tell which message came first, so --order ready needs --backend ucx.", facts.title));
  if (request.evaluates && request.masked)
    throw UsageError("--masked is for comparing a training step, and --eval trains nothing; leave one of them out.");
  if ((request.evaluates || request.synthetic) && hasUpdate(request))
    throw UsageError(
        fmt::format("{} updates no parameters, so options of the optimizer, its rate and gradients do not go with it; omit them.",
                    request.evaluates ? "--eval" : "--synthetic"));
  if (request.evaluates && (request.verify || !request.save.empty()))
    throw UsageError("--eval trains nothing, so --verify and --save do not go with it.");
  if (request.evaluates && (request.skipNonFinite || request.findNan))
    throw UsageError("--skip-nonfinite and --find-nan are for training, and --eval trains nothing; omit them.");
  if (request.evaluates && (!request.store.empty() || !request.log.empty()))
    throw UsageError("--eval measures no steps, so --store and --log do not go with it; omit them.");
  if (!request.outputs.empty() && !request.evaluates) throw UsageError("--outputs belongs to --eval; add it, or omit --outputs.");
  if (request.keep > 0 && !isHistory(request.save))
    throw UsageError("--keep is about a history of checkpoints; name them by step: --save 'checkpoint-{step}.pt'.");
  if (request.resetOptimizer && request.resume.empty())
    throw UsageError("--reset-optimizer belongs to --resume FILE; add it, or omit --reset-optimizer.");
  if (request.saveEvery > 0 && request.save.empty()) throw UsageError("--save-every needs --save FILE.");
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

void refuseForModel(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (!o.request.evaluates) {
    const StateTensor* byReplicas = plan.replicas > 1 ? parameterChangedByInputs(graph) : nullptr;
    if (const auto no = obstacleToCopies(graph, plan.schedule.placement, firstChangedState(graph), byReplicas)) refuse(*no);
    const StateTensor* kept = plan.schedule.microbatches > 1 ? parameterReadWhileChanged(graph) : nullptr;
    if (kept != nullptr && interleavesForwards(plan, graph, *kept))
      throw UsageError(
          fmt::format("the forward of {} changes the parameter {}, as nn.Embedding(max_norm=...) does, and other operators use "
                      "it too, whose backward would find what later microbatches made of it; plan with --microbatches 1 or --ranks 1 "
                      "--schedule 1f1b, give the embedding a weight of its own, or limit norms after the optimizer's step",
                      plan.modelName, kept->name));
  }
  if (!o.zero1 || (plan.replicas == 1 && !plan.schedule.placement.bidirectional())) return;
  for (const StateTensor& parameter : graph.parameters) {
    const auto& tensor = graph.value(parameter.value).tensor;
    if (tensor && (tensor->dtype == DType::ComplexHalf || tensor->dtype == DType::ComplexFloat || tensor->dtype == DType::ComplexDouble)) {
      throw UsageError(fmt::format(
          "--zero1 cannot spread the optimizer's state of complex parameters such as {} over ranks; give --no-zero1.", parameter.name));
    }
  }
}

void refuseToEvaluate(const RunSettings& o, const ExportRecord& exported) {
  if (!o.request.evaluates || exported.evalDiffers.empty()) return;
  throw UsageError(fmt::format(
      "--eval would not compute what the model does in eval(): in the trace, which is of train() and in which --eval switches off "
      "dropout and batch statistics, {}. Evaluate the checkpoint in PyTorch, or have forward do the same in both modes and "
      "export it again.",
      exported.evalDiffers));
}

TrainOptions trainOptions(const RunSettings& o, const Plan& plan) {
  const RunRequest& request = o.request;
  TrainOptions options;
  options.steps = request.steps;
  options.verify = request.verify;
  options.deadline = request.timeout;
  options.stage.seed = o.seed;
  options.stage.optimizer = o.update;
  options.stage.initRandom = request.initRandom;
  options.stage.data = {request.data == "synthetic" || namesFunction(request.data) ? "" : request.data, request.lossOver, request.masked,
                        request.lossCount};
  options.stage.data.feed = request.feed;
  options.stage.data.evaluatedSteps = request.evaluates ? request.steps : 0;
  options.stage.resume = request.resume;
  options.stage.resetOptimizer = request.resetOptimizer;
  options.stage.graphs = o.computing.graphs && !request.findNan;  // the values of a recorded stage cannot be observed
  options.stage.findNan = request.findNan;
  options.stage.keepBuffers = request.skipNonFinite;
  options.stage.keepOutputs = !request.outputs.empty();
  options.stage.precision = o.computing.precision;
  if (request.synthetic) options.synthetic = syntheticHost();
  options.executor = {.order = request.order,
                      .shardOptimizer = o.zero1,
                      .clipNorm = request.clipNorm,
                      .scaleLoss = o.computing.precision == DType::Float16 && !request.evaluates,
                      .checkFinite = !request.synthetic,
                      .skipNonFinite = request.skipNonFinite,
                      .sumLoss = plan.replicas > 1 || plan.schedule.placement.bidirectional() || !request.log.empty(),
                      .flightFiles = flightFiles(request),
                      .deadline = options.deadline};
  options.save = request.save;
  options.saveEvery = request.saveEvery;
  options.keep = request.keep;
  if (!request.resume.empty()) {
    const Resumption resumption = resumptionOf(request.resume, o.update, request.resetOptimizer || request.evaluates);
    options.firstStep = resumption.firstStep;
    options.stage.updates = resumption.updates;
    options.resumeNote = resumption.note;
    if (resumption.lossScale) options.executor.lossScale = LossScale(*resumption.lossScale, resumption.goodSteps);
  }
  return options;
}

std::string flightFiles(const RunRequest& request) { return request.store.empty() ? "flight-rank-" : request.store + ".flight-rank-"; }

}  // namespace pw
