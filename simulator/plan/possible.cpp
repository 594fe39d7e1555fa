#include "simulator/plan/possible.h"

#include <algorithm>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "simulator/model/batch.h"
#include "simulator/model/state_changes.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/recompute_to_fit.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/step/compiled_rows.h"

namespace pw {
Answer<BatchSizes> trySettledBatch(BatchSizes sizes, int parts, const ModelGraph& graph) {
  auto& [batch, microbatch] = sizes;
  if (batch == 0) batch = (microbatch == 0 ? exportedBatch(graph) : microbatch) * parts;
  if (batch < parts)
    return Impossible{
        fmt::format("A batch of {} cannot be cut into {} microbatches; use a larger --batch or fewer --microbatches.", batch, parts)};
  if (microbatch == 0) microbatch = (batch + parts - 1) / parts;
  const std::int64_t largest = (batch + parts - 1) / parts;
  if (largest != microbatch) {
    return Impossible{fmt::format("--batch {} in {} microbatches has microbatches of {}, not {}; use --batch {}, or omit it.", batch, parts,
                                  largest, microbatch, microbatch * parts)};
  }
  if (auto no = obstacleToBatch(graph, microbatch)) return *std::move(no);
  return sizes;
}

std::optional<Impossible> obstacleToCopies(const ModelGraph& graph, const Placement& placement) {
  if (!placement.bidirectional() || placement.mirrorOfStage == placement.rankOfStage) return std::nullopt;
  const std::vector<StateChange> changes = stateChanges(graph);
  if (changes.empty()) return std::nullopt;
  return Impossible{
      fmt::format("{} changes {} in training, and this schedule keeps two copies of each stage, each of which would change its own by half "
                  "of the microbatches; use a schedule that keeps each stage on one rank, such as 1f1b or zbv.",
                  graph.name.empty() ? "The model" : graph.name, changes.front().state->name)};
}

Answer<Priced> tryPrice(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled) {
  if (!request.replicaBegins.empty()) return tryPriceReplicas(request, model, compiled);
  const ModelGraph& graph = model.graph();
  const Profile& profile = model.profile();
  const Schedule& rows = compiled.rows();
  const PlanSetting setting{graph,  profile,  rows, request.replicas, request.optimizer, optimizerShards(request, rows.placement),
                            &model, &compiled};
  if (auto no = lackOfRanks(profile, static_cast<int>(rows.rows.size()) * request.replicas)) return *std::move(no);
  const bool automatic = std::holds_alternative<RecomputeAuto>(request.recompute);
  const std::vector<Bytes> limits = memoryLimits(request, profile, rows.rows.size());
  if (automatic && std::ranges::all_of(limits, [](Bytes limit) { return limit == 0; }))
    return Impossible{
        "Automatic recomputation recomputes as little as the memory limit allows; set a memory limit, or name the modules to recompute."};
  Answer<Partition> cut = model.cut(request.begins);
  if (!cut) return cut.refusal();
  Priced priced;
  priced.partition = *std::move(cut);
  if (auto no = trySetRecompute(graph, priced.partition, request.recompute, model.changes())) return *std::move(no);
  if (auto no = obstacleToPlace(profile, rows.placement, request.replicas)) return *std::move(no);
  if (auto no = obstacleToCopies(graph, rows.placement)) return *std::move(no);
  priced.sharing = chooseSharing(setting, priced.partition, request.sharing, limits);
  if (automatic) static_cast<void>(recomputeToFit(setting, priced.partition, limits));
  priced.costs = model.costTable(priced.partition, rows.placement, request.replicas);
  priced.costs.microbatchScale = microbatchScale(request, 0);  // whose microbatches are the largest
  requireSummable(priced.costs, shapeOf(rows));
  return priced;
}

}  // namespace pw
