#include "engine/planning/plan_model.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <variant>

#include <fmt/format.h>

#include "backends/host/files.h"
#include "backends/host/gpu_inventory.h"
#include "backends/resources/resources.h"
#include "backends/torch/backend.h"
#include "engine/planning/inputs/job_source.h"
#include "engine/planning/inputs/layer_costs.h"
#include "engine/planning/inputs/limits.h"
#include "engine/planning/inputs/schedule_source.h"
#include "engine/planning/inputs/step_work.h"
#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/job/held_out.h"
#include "simulator/job/job_costs.h"
#include "simulator/job/memory.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/made_order.h"
#include "simulator/report/lower_bound.h"
#include "simulator/report/metrics.h"
#include "simulator/search/fitted_splits.h"
#include "simulator/search/replica_splits.h"
#include "simulator/search/search.h"
#include "simulator/step/compile.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"
#include "simulator/step/simulate.h"
#include "simulator/text/counted.h"

namespace pw {
namespace {

/// The number of devices: GPUs if there are several and the CPU was not requested, otherwise cores.
int devicesHere(const MeasureOptions& how) {
  const auto gpus = how.device == MeasureDevice(OnCpus()) ? 0 : std::ranges::count_if(gpuInventory().gpus, isUsable);
  return gpus > 1 ? static_cast<int>(gpus) : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Stages that the splits, or the marks in the model, make.
int piecesOf(const PlanOptions& o, const ModelGraph& graph) {
  return static_cast<int>(o.splits.empty() ? graph.splitMarkers.size() : o.splits.size()) + 1;
}

/// Our name of the schedule, and defaults for ranks and microbatches that were not given; whether the latter were not.
bool settlePlanShape(PlanOptions& o, const ModelGraph& graph) {
  if (o.schedule.ends_with(".csv")) {
    const Shape shape = shapeOf(
        generateFrom(o.schedule, {.ranks = o.ranks, .chunks = o.chunks, .microbatches = o.microbatches, .group = 0, .strict = false}));
    o.microbatches = shape.microbatches;
    return false;
  }
  if (madeSchedule(o.schedule) == nullptr) o.schedule = familyOf(o.schedule).name;
  const int chunks = o.chunks > 0 ? o.chunks : usualChunks(o.schedule), pieces = piecesOf(o, graph);
  if (o.ranks == 0 && pieces > 1 && pieces % chunks == 0) o.ranks = pieces / chunks;
  if (o.ranks == 0) o.ranks = devicesHere(o.how);
  const bool byDefault = o.microbatches == 0;
  const std::int64_t fixed = batchSymbol(graph).empty() ? exportedBatch(graph) : o.microbatch;
  if (o.microbatches == 0) o.microbatches = defaultMicrobatches(o.ranks, o.replicas, o.batch, fixed);
  return byDefault;
}

/// Defaults for the plan of a job: the ranks and microbatches that it ran with.
void settleLikeJob(PlanOptions& o, const Job& job) {
  if (o.schedule.ends_with(".csv")) return;
  if (o.microbatches == 0 && o.batch == 0) o.microbatches = job.schedule.microbatches;
  if (o.ranks == 0 && o.splits.empty()) o.ranks = shapeOf(job.schedule).ranks;
}

/// The requested schedule, for the ranks and stages that options and model determine. Refuses impossible combinations and unknown names
/// before anything is measured.
Schedule chooseSchedule(const PlanOptions& o, const ModelGraph& graph) {
  const int pieces = piecesOf(o, graph);
  const bool made = madeSchedule(o.schedule) != nullptr;  // later, from costs: for now its shape
  const Shape shape{o.ranks, o.ranks * std::max(1, o.chunks), o.microbatches};
  Schedule schedule =
      made ? serialSchedule(loopPlacement(shape), shape.ranks, shape.microbatches)
           : generateFrom(o.schedule, {.ranks = o.ranks, .chunks = o.chunks, .microbatches = o.microbatches, .group = 0, .strict = false});
  if (made) schedule.name = o.schedule;
  requireRunnable(o.schedule, schedule);
  const int stages = shapeOf(schedule).stages;
  if (!o.splits.empty() && stages != pieces) {
    throw UsageError(fmt::format("The split points make {} stages, but {} has {} on {}; use {}.", pieces, o.schedule, stages,
                                 counted(shapeOf(schedule).ranks, "rank"), counted(stages - 1, "split point")));
  }
  return schedule;
}

/// The placement of the schedule, in the requested order of ranks.
Placement orderedPlacement(const Schedule& schedule, const std::vector<Rank>& order) {
  return order.empty() ? schedule.placement : withRankOrder(schedule, order).placement;
}

CostsFrom costsFrom(const PlanOptions& o) {
  if (o.profileAtHand || !o.profile.empty()) return CostsFrom::Profile;
  return o.cluster.empty() ? CostsFrom::Measuring : CostsFrom::Cluster;
}

LayerOptions layersOfPlan(const PlanOptions& o) {
  const bool recomputes = !std::holds_alternative<RecomputeNone>(o.recompute) && !std::holds_alternative<RecomputeAuto>(o.recompute);
  return {o.cluster, o.profileAtHand || !o.profile.empty(), recomputes, o.microbatch, o.loss, o.how};
}

Profile chooseProfile(const PlanOptions& o, const ModelGraph& graph, std::int64_t microbatch, int ranks, const Tell& tell) {
  if (o.profileAtHand || !o.profile.empty()) {
    const std::string source = o.profileAtHand ? "The profile" : o.profile;
    Profile profile = o.profileAtHand ? *o.profileAtHand : loadProfile(o.profile);
    if (profile.nodes.size() != graph.nodes.size())
      throw UsageError(fmt::format("{} is not a profile of {}; profile this model.", source, graph.name));
    if (profile.microbatch != microbatch) {
      throw UsageError(fmt::format("{} was measured at microbatch {}, the plan has {}; profile with --microbatch {}.", source,
                                   profile.microbatch, microbatch, microbatch));
    }
    if (!o.cluster.empty()) placeOn(profile, loadCluster(o.cluster));
    return profile;
  }
  if (!o.cluster.empty()) return estimateFor(graph, microbatch, loadCluster(o.cluster), o.how, lossNamed(o.loss, graph));
  return measureWithRanks(o.models, microbatch, ranks, o.how, lossNamed(o.loss, graph), tell);
}

PlanRequest requestOf(const PlanOptions& o, const ModelGraph& graph, const Profile& profile, const Schedule& schedule, Bytes limit) {
  PlanRequest request;
  request.schedule = schedule.name;
  request.ranks = shapeOf(schedule).ranks;
  request.microbatches = o.microbatches;
  request.replicas = o.replicas;
  request.microbatch = o.microbatch;
  request.batch = o.batch;
  for (const int rank : o.rankOrder) request.rankOrder.emplace_back(rank);
  request.begins = chooseSplits(o, graph, profile, orderedPlacement(schedule, request.rankOrder));
  request.loss = lossNamed(o.loss, graph);
  request.recompute = o.recompute;
  request.sharing = o.share;
  request.optimizer = o.optimizer;
  request.zero1 = o.zero1;
  request.memoryLimit = limit;
  const std::vector<Bytes> limits = memoryLimits(request, profile, schedule.rows.size());
  if (std::holds_alternative<RecomputeAuto>(request.recompute) && std::ranges::all_of(limits, [](Bytes own) { return own == 0; })) {
    throw UsageError(
        "--recompute auto recomputes as little as the memory limit allows; set --memory-limit, or name the modules to recompute.");
  }
  return request;
}

void requirePlanInRange(const PlanOptions& o) {
  requireWhole("--ranks", o.ranks, 0, kMostPlanRanks);
  requireWhole("--chunks", o.chunks, 0, kMostPlanChunks);
  requireWhole("--microbatches", o.microbatches, 0, kMaxMicrobatches);
  requireWhole("--microbatch", o.microbatch, 0, kMostMicrobatchSamples);
  requireWhole("--batch", o.batch, 0, kMostBatchSamples);
  requireWhole("--replicas", o.replicas, 1, kMaxReplicas);
  requireWhole("--threads", o.how.threads, 0, kMostThreads);
  requireNumber("--momentum", o.optimizer.momentum, 0, 1);
  if (o.seconds) requireNumber("--seconds", *o.seconds, kShortestOrderSearch, kLongestOrderSearch);
  if (o.seconds && madeSchedule(o.schedule) == nullptr) {
    throw UsageError(
        fmt::format("--seconds is how long an order is searched, and {} has its own; omit it, or use --schedule auto.", o.schedule));
  }
  if (o.balance && !o.splits.empty()) throw UsageError("--split says where stages begin; omit it or --balance.");
  if (o.sameSplits && o.replicas == 1) throw UsageError("--same-splits is for replicas, and the plan has one; add --replicas, or omit it.");
  if (o.sameSplits && (!o.splits.empty() || o.balance.value_or(Balance::Time) != Balance::Time)) {
    throw UsageError(
        fmt::format("{} cuts all replicas alike; omit it or --same-splits.", o.splits.empty() ? "--balance other than time" : "--split"));
  }
}

/// Whether a cut can give a parameter to several stages: several nodes read it.
bool canShareParameters(const ModelGraph& graph) {
  std::map<ValueId, const std::string*> parameters;
  for (const StateTensor& parameter : graph.parameters) parameters.emplace(parameter.value, &storageOf(parameter));
  std::set<std::string> read;
  for (const Node& node : graph.nodes) {
    std::set<std::string> own;
    for (const ValueId value : readsOf(node)) {
      if (const auto found = parameters.find(value); found != parameters.end()) own.insert(*found->second);
    }
    for (const std::string& storage : own) {
      if (!read.insert(storage).second) return true;
    }
  }
  return false;
}

/// Refuses options that would change nothing of this plan.
void refuseUnused(const PlanOptions& o, const Schedule& schedule, const ModelGraph& graph) {
  if (o.zero1 && optimizerShards(true, o.replicas, schedule.placement) == 1)
    throw UsageError("--zero1 spreads the optimizer's state over replicas, and the plan has one; add --replicas, or omit it.");
  if (o.share && !canShareParameters(graph))
    throw UsageError(fmt::format("--share is for parameters of several stages, and {} reads each only once; omit it.", graph.name));
}

/// Batch and microbatch of each other, where one was not given.
void settleBatch(PlanOptions& o, const ModelGraph& graph) {
  const BatchSizes sizes = settledBatch({o.batch, o.microbatch}, o.replicas * o.microbatches, graph);
  o.batch = sizes.batch;
  o.microbatch = sizes.microbatch;
}

OrderEffort planEffort(const PlanOptions& o) {
  return {.seconds = o.seconds.value_or(OrderEffort().seconds), .threads = kOrderThreads, .shouldContinue = o.shouldContinue};
}

/// Rows and costs of the plan: of its schedule, or of an order made for its costs.
MadeOrder scheduled(const PlannedModel& planned, ModelCosts& model, const Schedule& schedule) {
  if (madeSchedule(planned.options.schedule) != nullptr)
    return makeOrder(planned.request, model, shapeOf(schedule).stages, planEffort(planned.options));
  MadeOrder given{planRows(schedule, planned.request.replicas, planned.request.rankOrder), {}, std::nullopt};
  CompiledRows compiled(given.rows);
  given.priced = price(planned.request, model, compiled);
  return given;
}

/// Whether the splits are ours to choose: balanced ones by time.
bool choosesSplits(const PlannedModel& planned) {
  const PlanOptions& o = planned.options;
  const bool marked = !o.balance && !planned.graph.splitMarkers.empty() && planned.request.begins == planned.graph.splitMarkers;
  return o.splits.empty() && !marked && o.balance.value_or(Balance::Time) == Balance::Time;
}

/// Splits for the memory limits, where they are ours to choose: those that fit where balanced ones do not; for a schedule made for costs
/// those with which it ends earliest.
void moveToFit(PlannedModel& planned, const Schedule& schedule) {
  const PlanOptions& o = planned.options;
  const std::vector<NodeId> balanced = planned.request.begins;
  if (!choosesSplits(planned)) return;
  const Schedule rows = planRows(schedule, planned.request.replicas, planned.request.rankOrder);
  planned.request.begins =
      splitsWithinLimits(planned.request, planned.graph, std::make_shared<const Profile>(planned.profile), rows, balanced, planEffort(o));
  planned.movedToFit = planned.request.begins != balanced;
}

/// Splits for each replica's own ranks, where replicas differ and that is faster.
void splitReplicas(PlannedModel& planned, ModelCosts& model, MadeOrder& made) {
  if (planned.options.sameSplits || !choosesSplits(planned) || !replicasDiffer(planned.request, planned.profile)) return;
  CostTable costs = made.priced.costs;
  addOptimizerState(costs, stateCopies(planned.request.optimizer), optimizerShards(planned.request, made.rows.placement));
  const Ns same = metricsOf(simulate(made.rows, costs)).step;
  const bool fits = excessOf(compile(made.rows, costs).peakBytes, planned.limits) == 0;
  std::optional<OwnSplits> own = ownSplits(planned.request, model, made.rows, fits ? std::optional(same) : std::nullopt);
  if (!own) return;
  planned.request = std::move(own->request);
  made.priced = std::move(own->priced);
  made.certificate.reset();  // of an order for other costs
  if (fits) planned.stepWithSameSplits = same;
  planned.limits = memoryLimits(planned.request, planned.profile, made.rows.rows.size());
}

/// Fills what is predicted of the plan.
void predictPlan(PlannedModel& planned) {
  const Plan& plan = planned.plan;
  planned.costs = plan.costs;
  addOptimizerState(planned.costs, stateCopies(planned.request.optimizer), optimizerShards(planned.request, plan.schedule.placement));
  const Program program = compile(plan.schedule, planned.costs);
  Times times;
  execute(program, times);
  planned.trace = traceOf(plan.schedule, planned.costs, program, times);
  planned.prediction = predict(plan.schedule, planned.costs, program, times, planned.trace);
  Bytes most = 0;
  for (const RankMetrics& rank : planned.prediction.metrics.ranks) {
    const Bytes excess = excessOf(rank.peakBytes, planned.limits.at(rank.rank.index()));
    if (excess <= most) continue;
    most = excess;
    planned.tooLarge = rank.rank;
  }
  planned.prediction.fits = !planned.tooLarge;
  if (!planned.prediction.fits || std::ranges::all_of(planned.limits, [](Bytes limit) { return limit == 0; })) return;
  planned.prediction.lowerBound = lowerBounds(plan.schedule, planned.costs, {}, planned.limits);
}

}  // namespace

std::vector<NodeId> chooseSplits(const PlanOptions& o, const ModelGraph& graph, const Profile& profile, const Placement& placement) {
  const auto stages = static_cast<int>(placement.stages());
  if (!o.splits.empty()) {
    std::vector<NodeId> begins;
    for (const std::string& split : o.splits) begins.push_back(findSplit(graph, split));
    std::sort(begins.begin(), begins.end());
    if (std::adjacent_find(begins.begin(), begins.end()) != begins.end())
      throw UsageError("Two of the split names denote the same place; name each place once.");
    return begins;
  }
  if (!o.balance && static_cast<int>(graph.splitMarkers.size()) + 1 == stages) return graph.splitMarkers;
  return balancedSplits(graph, profile, stages, o.balance.value_or(Balance::Time), stageSpeeds(profile, placement, o.replicas));
}

std::string tooLargeSentence(const PlannedModel& planned) {
  const bool recomputes = !std::holds_alternative<RecomputeNone>(planned.options.recompute);
  const std::size_t rank = planned.tooLarge.value().index();
  const auto [needed, limit] = formatSizes(planned.prediction.metrics.ranks[rank].peakBytes, planned.limits[rank]);
  return fmt::format(
      "Rank {} would need {}, more than the limit of {}, so no plan was written; use more ranks, smaller microbatches{} or another balance",
      rank, needed, limit, recomputes ? "" : ", --recompute auto");
}

PlannedModel planModel(PlanOptions options, const Tell& tell) {
  PlannedModel planned;
  PlanOptions& o = planned.options = std::move(options);
  requirePlanInRange(o);
  const std::shared_ptr<const Job> job = jobOfModel(o.models);
  planned.graph = job ? jobModel(*job, o.models.front()) : loadModel(o.models);  // first of all: a file that is not there matters most
  const ModelGraph& graph = planned.graph;
  const bool layers = isLayerChain(graph);
  if (job && !o.memoryLimit.empty()) requireMemory(*job);
  if (job) planned.notes = job->notes;
  if (layers) {
    planned.profile = layerCosts(graph, layersOfPlan(o));
    if (job) planned.profile.uncertainty = uncertaintyOfOthers(*job);
    o.microbatch = planned.profile.microbatch;
  } else {
    refuseWhatCannotMeasure(o.how, costsFrom(o));
  }
  requireConsistent(o.optimizer);
  if (job) settleLikeJob(o, *job);
  planned.microbatchesByDefault = settlePlanShape(o, graph);
  settleBatch(o, graph);
  const Schedule schedule = chooseSchedule(o, graph);
  refuseUnused(o, schedule, graph);
  if (job && trains(schedule)) requireBackwards(*job);
  for (const std::string& split : o.splits) static_cast<void>(findSplit(graph, split));
  if (!layers) planned.profile = chooseProfile(o, graph, o.microbatch, shapeOf(schedule).ranks, tell);
  planned.request = requestOf(o, graph, planned.profile, schedule, o.memoryLimit.empty() ? 0 : parseSize(o.memoryLimit));
  planned.limits = memoryLimits(planned.request, planned.profile, schedule.rows.size());
  moveToFit(planned, schedule);
  ModelCosts model(graph, planned.profile, planned.request.microbatch);
  MadeOrder made = scheduled(planned, model, schedule);
  splitReplicas(planned, model, made);
  planned.plan =
      planOf(planned.request, graph, planned.profile, made.rows, made.priced, splitPoints(graph, bindBatch(graph, o.microbatch)));
  planned.plan.libraries = libraryPaths(o.how.libraries);
  planned.sharing = std::move(made.priced.sharing);
  predictPlan(planned);
  planned.prediction.processBytes = processBytes(planned.plan);
  planned.prediction.uncertainty = planned.profile.uncertainty;
  planned.prediction.work = workOf(planned.plan, graph);
  planned.prediction.utilisation = flopUtilisation(planned.plan, planned.prediction.metrics.step);
  if (planned.plan.partition.stages.size() > 1) planned.oneRank = onOneRank(planned.request, model, trains(planned.plan.schedule));
  planned.plan.certificate = made.certificate;
  if (made.certificate) {
    planned.prediction.certificate = made.certificate;
    planned.prediction.lowerBound.flush = made.certificate->lowerBound;
  }
  return planned;
}

}  // namespace pw
