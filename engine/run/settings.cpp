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

}  // namespace

void followPlan(RunSettings& o, const Plan& plan) {
  const Computing profiled = plan.profile.computing;  // of a cluster's: on CPUs, as traced
  if (!o.transport) o.transport = defaultTransport(profiled.onGpu);
  if (!o.precision) o.precision = o.synthetic ? DType::Unknown : profiled.precision;
  if (o.precision == DType::Float8)
    throw UsageError("The plan's costs are estimated for fp8, in which the engine does not compute; run it with --precision bf16.");
  o.computing.onGpu = factsOf(*o.transport).onGpu;
  o.computing.precision = *o.precision;
  o.computing.tf32 = o.tf32.value_or(profiled.tf32 && o.computing.onGpu);
  o.computing.graphs = o.computing.onGpu && o.graphs.value_or(profiled.graphs || !profiled.onGpu);
  if (o.threads == 0) o.threads = plan.profile.threads;
}

namespace {

std::string precisionWords(DType precision) {
  return precision == DType::Unknown ? "as traced" : fmt::format("in {}", precisionName(precision));
}

}  // namespace

std::string optimizerNote(const RunSettings& o, const Plan& plan) {
  if (!plan.optimizer || o.synthetic || o.evaluates) return "";
  const PlannedOptimizer& planned = *plan.optimizer;
  const bool sameShare = planned.zero1 == o.zero1.value() || stateCopies(o.update) == 0;
  if (stateCopies(planned.update) == stateCopies(o.update) && sameShare) return "";
  const auto words = [](const OptimizerSpec& update, bool zero1) {
    return fmt::format("{} ({} of each parameter{})", nameOf(update.kind), counted(stateCopies(update), "number"),
                       zero1 ? ", shared by replicas" : "");
  };
  return fmt::format("{} accounts for the state of {}, and this run has {}: its memory differs", o.plan,
                     words(planned.update, planned.zero1), words(o.update, o.zero1.value()));
}

std::string costsNote(const RunSettings& o, const Plan& plan) {
  const Profile& profile = plan.profile;
  if (profile.nodes.empty() || o.synthetic) return "";
  if (profile.estimated && profile.machine.cores == 0) {  // for a cluster
    if (profile.computing.precision == o.computing.precision) return "";
    return fmt::format("{} was planned for computing {}, and this run computes {}: predicted times and memory are not its own", o.plan,
                       precisionWords(profile.computing.precision), precisionWords(o.computing.precision));
  }
  const bool sameThreads = o.computing.onGpu || o.threads == profile.threads;
  const auto by = [&](int threads) { return sameThreads ? "" : " by " + counted(threads, "thread"); };
  if (profile.computing == o.computing && sameThreads) return "";
  return fmt::format("{} was planned from times {}{}, and this run computes {}{}: predicted times are not its own", o.plan,
                     computingText(profile.computing), by(profile.threads), computingText(o.computing), by(o.threads));
}

void refuseWhatCannotRun(const RunSettings& o, const Plan& plan) {
  requireRunnable("The schedule of " + o.plan, plan.schedule);
  if (!trains(plan.schedule) && !o.evaluates)
    throw UsageError(
        fmt::format("The schedule of {} has no backward, so there is nothing to train; use another schedule, or --eval.", o.plan));
  if (o.lossOver == LossScope::WholeBatch && !o.evaluates && !forwardsComeFirst(plan.schedule)) {
    throw UsageError(
        fmt::format("{} runs backwards of the last stage before all its forwards, so there is no loss over the whole batch; plan with "
                    "--schedule gpipe, or use --loss-over microbatch.",
                    o.plan));
  }
  if (o.computing.onGpu) {
    const std::string why = whyUnusable(gpuInventory(), 0);
    const std::string option = fmt::format("--backend {}", nameOf(*o.transport));
    const std::string who = plan.profile.computing.onGpu ? fmt::format("{} was planned on GPUs, and {}", o.plan, option) : option;
    if (!why.empty()) throw UsageError(fmt::format("{} runs on GPUs. {} Without one, use --backend ucx.", who, why));
  } else if (o.computing.tf32 || o.graphs) {
    throw UsageError(fmt::format("{} is for GPUs; add --backend nccl, or omit it.", o.computing.tf32 ? "--tf32"
                                                                                    : *o.graphs      ? "--graphs"
                                                                                                     : "--no-graphs"));
  }
  if (o.synthetic && (o.verify || o.evaluates || !o.save.empty() || !o.resume.empty() || o.data != "synthetic" ||
                      o.computing.precision != DType::Unknown || o.initRandom || o.masked || o.skipNonFinite || o.findNan ||
                      o.lossOver != LossScope::PerMicrobatch || !o.loss.empty() || !o.lossCount.empty())) {
    throw UsageError("--synthetic computes nothing, so options about data, loss, precision and checkpoints do not go with it; omit them.");
  }
  refuseWhatIsNotDynamic(o, plan);
  if (o.verify && o.computing.precision != DType::Unknown) {
    throw UsageError(fmt::format("--verify compares bits that {} rounds away; omit it, or add --precision traced.",
                                 precisionName(o.computing.precision)));
  }
  if (const TransportFacts facts = factsOf(*o.transport); o.order == Order::Ready && !facts.tellsArrivals && worldSize(plan) > 1)
    throw UsageError(fmt::format("{} cannot tell which message came first, so --order ready needs --backend ucx.", facts.title));
  if (o.evaluates && o.masked)
    throw UsageError("--masked is for comparing a training step, and --eval trains nothing; leave one of them out.");
  if (o.evaluates && (o.verify || !o.save.empty())) throw UsageError("--eval trains nothing, so --verify and --save do not go with it.");
  if (o.evaluates && (o.skipNonFinite || o.findNan))
    throw UsageError("--skip-nonfinite and --find-nan are for training, and --eval trains nothing; omit them.");
  if (o.evaluates && (!o.store.empty() || !o.log.empty()))
    throw UsageError("--eval measures no steps, so --store and --log do not go with it; omit them.");
  if (!o.outputs.empty() && !o.evaluates) throw UsageError("--outputs belongs to --eval; add it, or omit --outputs.");
  if (o.keep > 0 && !isHistory(o.save))
    throw UsageError("--keep is about a history of checkpoints; name them by step: --save 'checkpoint-{step}.pt'.");
  if (o.resetOptimizer && o.resume.empty())
    throw UsageError("--reset-optimizer belongs to --resume FILE; add it, or omit --reset-optimizer.");
  if (o.saveEvery > 0 && o.save.empty()) throw UsageError("--save-every needs --save FILE.");
}

std::string lossNote(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (!o.lossCount.empty()) {
    static_cast<void>(parseLossCount(graph, plan.loss, o.lossCount));
    return "";
  }
  const int microbatches = plan.replicas * plan.schedule.microbatches;
  return microbatches > 1 ? lossBias(graph, plan.loss) : "";
}

std::string decayNote(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (o.evaluates || graph.outputs.empty()) return "";
  constexpr std::string_view kOwn = "output:";
  const auto own = plan.loss.starts_with(kOwn) ? findOutput(graph, plan.loss.substr(kOwn.size())) : std::nullopt;
  std::vector<std::string> names = unreachedParameters(graph, graph.outputs[own.value_or(0)]);
  std::erase_if(names, [&](const std::string& name) { return ofGroup(o.update, groupOf(o.update, name)).weightDecay == 0; });
  if (names.empty()) return "";
  return fmt::format(
      "the loss gives {}{} no gradient: weight decay changes it all the same, unlike torch.optim, which leaves it out; turn its "
      "requires_grad off",
      names.front(), names.size() > 1 ? fmt::format(" and {} more", counted(names.size() - 1, "parameter")) : "");
}

void refuseSharesOfComplexNumbers(const RunSettings& o, const Plan& plan, const ModelGraph& graph) {
  if (!o.zero1.value() || (plan.replicas == 1 && !plan.schedule.placement.bidirectional())) return;
  for (const StateTensor& parameter : graph.parameters) {
    const auto& tensor = graph.value(parameter.value).tensor;
    if (tensor && (tensor->dtype == DType::ComplexHalf || tensor->dtype == DType::ComplexFloat || tensor->dtype == DType::ComplexDouble)) {
      throw UsageError(fmt::format(
          "--zero1 cannot spread the optimizer's state of complex parameters such as {} over ranks; give --no-zero1.", parameter.name));
    }
  }
}

void completeOptimizer(RunSettings& o, const Plan& plan) {
  const PlannedOptimizer planned = plan.optimizer.value_or(PlannedOptimizer());
  o.update.kind = o.optimizer.value_or(planned.update.kind);
  if (!o.optimizer) o.update.momentum = planned.update.momentum;
  if (o.momentum) o.update.momentum = *o.momentum;
  if (!o.zero1) o.zero1 = planned.zero1;
  if (!o.betas.empty()) {
    o.update.beta1 = o.betas[0];
    o.update.beta2 = o.betas[1];
  }
  requireConsistent(o.update);
  if (o.update.decaySteps > 0 && o.update.decaySteps <= o.update.warmupSteps)
    throw UsageError("--decay-steps counts from the first step and must be more than --warmup.");
}

std::chrono::milliseconds deadlineOf(const RunSettings& o) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(o.timeoutSeconds * 1000));
}

TrainOptions trainOptions(const RunSettings& o, const Plan& plan) {
  TrainOptions options;
  options.steps = o.steps;
  options.verify = o.verify;
  options.deadline = deadlineOf(o);
  options.stage.seed = o.seed;
  options.stage.optimizer = o.update;
  options.stage.initRandom = o.initRandom;
  options.stage.data = {o.data == "synthetic" || namesFunction(o.data) ? "" : o.data, o.lossOver, o.masked, o.lossCount};
  options.stage.data.feed = o.feed;
  options.stage.resume = o.resume;
  options.stage.resetOptimizer = o.resetOptimizer;
  options.stage.graphs = o.computing.graphs && !o.findNan;  // the values of a recorded stage cannot be observed
  options.stage.findNan = o.findNan;
  options.stage.keepBuffers = o.skipNonFinite;
  options.stage.precision = o.computing.precision;
  if (o.synthetic) options.synthetic = syntheticHost();
  options.executor = {.order = o.order,
                      .shardOptimizer = o.zero1.value(),
                      .clipNorm = o.clipNorm,
                      .scaleLoss = o.computing.precision == DType::Float16 && !o.evaluates,
                      .checkFinite = !o.synthetic,
                      .skipNonFinite = o.skipNonFinite,
                      .sumLoss = plan.replicas > 1 || plan.schedule.placement.bidirectional() || !o.log.empty(),
                      .flightFiles = flightFiles(o),
                      .deadline = options.deadline};
  options.save = o.save;
  options.saveEvery = o.saveEvery;
  options.keep = o.keep;
  if (!o.resume.empty()) {
    const Resumption resumption = resumptionOf(o.resume, o.update, o.resetOptimizer || o.evaluates);
    options.firstStep = resumption.firstStep;
    options.resumeNote = resumption.note;
    options.executor.lossScale = resumption.lossScale.value_or(LossScale::kInitial);
  }
  return options;
}

std::string flightFiles(const RunSettings& options) { return options.store.empty() ? "flight-rank-" : options.store + ".flight-rank-"; }

}  // namespace pw
