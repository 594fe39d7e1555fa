#include "simulator/plan/planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/model/graph_facts.h"
#include "simulator/order/find.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/step/compiled_rows.h"

namespace pw {

int usualChunks(std::string_view schedule) { return madeSchedule(schedule) != nullptr ? 1 : generatorOf(schedule).chunks; }

int defaultMicrobatches(int ranks, int replicas, std::int64_t batch, std::int64_t microbatch) {
  const std::int64_t usual = 4 * std::int64_t{ranks}, samples = batch / replicas;  // of a replica
  if (batch == 0) return static_cast<int>(std::min<std::int64_t>(usual, kMaxMicrobatches));
  if (microbatch > 0) {
    const std::int64_t most = (batch + replicas - 1) / replicas, count = (most + microbatch - 1) / microbatch;
    return static_cast<int>(std::clamp<std::int64_t>(count, 1, kMaxMicrobatches));
  }
  const std::int64_t most = std::clamp<std::int64_t>(samples, 1, std::min<std::int64_t>(usual, kMaxMicrobatches));
  for (std::int64_t count = most; count >= ranks; --count) {
    if (batch % (replicas * count) == 0) return static_cast<int>(count);
  }
  return static_cast<int>(most);
}

BatchSizes settledBatch(BatchSizes sizes, int parts, const ModelGraph& graph) { return trySettledBatch(sizes, parts, graph).orThrow(); }

bool reducesGradients(const Placement& placement, int replicas) {
  return replicas > 1 || (placement.bidirectional() && placement.mirrorOfStage != placement.rankOfStage);
}

Schedule planRows(const Schedule& schedule, int replicas, const std::vector<Rank>& rankOrder) {
  Schedule rows = lower(rankOrder.empty() ? schedule : withRankOrder(schedule, rankOrder));
  return reducesGradients(rows.placement, replicas) ? withReductions(rows) : rows;
}

Placement placementOf(const PlanRequest& request, int stages) {
  const Shape shape{request.ranks, stages, request.microbatches};
  Placement placement = madeSchedule(request.schedule) != nullptr ? loopPlacement(shape) : generate(request.schedule, shape).placement;
  return request.rankOrder.empty() ? placement
                                   : withRankOrder(std::move(placement), static_cast<std::size_t>(request.ranks), request.rankOrder);
}

std::vector<NodeId> balancedFor(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, int stages, Balance by) {
  if (allAtFullSpeed(profile.topology)) return balancedSplits(graph, profile, stages, by);
  return balancedSplits(graph, profile, stages, by, stageSpeeds(profile, placementOf(request, stages), request.replicas));
}

std::vector<Bytes> memoryLimits(const PlanRequest& request, const Profile& profile, std::size_t ranks) {
  if (!request.replicaBegins.empty()) {
    const OwnPipeline own = shownPipeline(request, profile);
    return memoryLimits(own.request, own.profile, ranks);
  }
  const Replicas pipeline{static_cast<int>(ranks)};
  if (const auto no = lackOfRanks(profile, pipeline.ranks * request.replicas)) refuse(*no);
  const PipelineTopology topology(profile.topology, pipeline, request.replicas);
  std::vector<Bytes> limits(ranks, request.memoryLimit);
  for (std::size_t r = 0; r < limits.size(); ++r) {
    const Bytes own = topology.memory(Rank(r));
    if (own > 0 && (limits[r] == 0 || own < limits[r])) limits[r] = own;
  }
  return limits;
}

std::vector<std::string> splitNames(const std::vector<SplitPoint>& points, const std::vector<NodeId>& begins) {
  std::vector<std::string> names;
  for (const NodeId begin : begins) {
    const auto found = std::ranges::lower_bound(points, begin, {}, &SplitPoint::begin);
    names.push_back(found == points.end() || found->begin != begin ? fmt::format("@{}", begin.value) : found->name);
  }
  return names;
}

Priced price(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, const Schedule& rows) {
  ModelCosts model(graph, profile, request.microbatch);
  CompiledRows compiled(rows);
  return price(request, model, compiled);
}

Priced price(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled) { return tryPrice(request, model, compiled).orThrow(); }

Plan planOf(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, const Schedule& rows, const Priced& priced,
            const std::vector<SplitPoint>& points) {
  Plan plan;
  plan.modelFiles = graph.files;
  plan.modelName = graph.name;
  plan.fingerprint = fingerprintOf(graph);
  plan.microbatchSize = request.microbatch;
  plan.batch = samplesOf(request);
  plan.replicas = request.replicas;
  plan.loss = request.loss;
  plan.partition = priced.partition;
  plan.splitNames = splitNames(points, beginsOf(priced.partition));
  plan.cuts = priced.cuts;
  if (plan.cuts) {
    for (ReplicaCut& cut : plan.cuts->replicas) cut.splitNames = splitNames(points, beginsOf(cut.partition));
  }
  plan.schedule = rows;
  plan.costs = priced.costs;
  plan.profile = profile;
  plan.optimizer = PlannedOptimizer{request.optimizer, request.zero1};
  return plan;
}

}  // namespace pw
