#include "simulator/plan/possible.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "simulator/model/batch.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/recompute_to_fit.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"

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

std::optional<Impossible> obstacleToCopies(const ModelGraph& graph, const Placement& placement, const StateTensor* changed,
                                           const StateTensor* changedByReplicas) {
  const std::string name = graph.name.empty() ? "The model" : graph.name;
  if (changedByReplicas != nullptr)
    return Impossible{
        fmt::format("{} changes the parameter {} in its forward, as nn.Embedding(max_norm=...) does, and each replica would change its own "
                    "copy by the samples that it sees; use one replica, or limit norms after the optimizer's step.",
                    name, changedByReplicas->name)};
  if (changed == nullptr || !placement.bidirectional() || placement.mirrorOfStage == placement.rankOfStage) return std::nullopt;
  return Impossible{
      fmt::format("{} changes {} in training, and this schedule keeps two copies of each stage, each of which would change its own by half "
                  "of the microbatches; use a schedule that keeps each stage on one rank, such as 1f1b or zbv.",
                  name, changed->name)};
}

namespace {

/// Whether an action or message takes longer in one table than in the other; they are of the same cut.
bool isLongerSomewhere(const CostTable& a, const CostTable& b) {
  constexpr std::array times{&StageCost::forward, &StageCost::backward, &StageCost::backwardInput, &StageCost::backwardWeight,
                             &StageCost::optimizer};
  for (std::size_t s = 0; s < a.stages.size(); ++s) {
    if (std::ranges::any_of(times, [&](auto time) { return a.stages[s].*time > b.stages[s].*time; })) return true;
  }
  for (std::size_t m = 0; m < a.messages.size(); ++m) {
    if (a.messages[m].latency > b.messages[m].latency || a.messages[m].transfer > b.messages[m].transfer) return true;
  }
  return false;
}

/// The costs of the replica whose step is the longest, where replicas find other ranks or links; of several the first. A sum of gradients
/// is not made to wait for a replica that is later.
CostTable costsOfSlowest(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled, const Partition& partition) {
  const Placement& placement = compiled.rows().placement;
  std::vector<CostTable> tables;
  for (int d = 0; d < distinctReplicas(model.profile(), placement, request.replicas); ++d) {
    CostTable costs = model.costTable(partition, placement, request.replicas, d);
    if (std::ranges::any_of(tables, [&](const CostTable& other) { return !isLongerSomewhere(costs, other); })) continue;
    std::erase_if(tables, [&](const CostTable& other) { return !isLongerSomewhere(other, costs); });
    tables.push_back(std::move(costs));
  }
  std::optional<std::pair<Ns, std::size_t>> slowest;
  for (std::size_t i = 0; i < tables.size() && tables.size() > 1; ++i) {
    CostTable costs = tables[i];
    costs.microbatchScale = microbatchScale(request, 0);
    requireSummable(costs, shapeOf(compiled.rows()));
    addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, placement));
    const Program& program = compiled.timed(costs);
    Times times;
    execute(program, times);
    const Ns step = stepOf(compiled.rows(), costs, program, times);
    if (!slowest || step > slowest->first) slowest = {step, i};
  }
  return std::move(tables[slowest ? slowest->second : 0]);
}

/// How shared parameters are kept equal, with as little recomputed as the limits allow then: in the fastest way, in the fastest that fits
/// with nothing recomputed, and with one update of each alone, which leaves the most room. Whichever fits, or is nearest to it, and has the
/// shortest step.
void chooseRecomputed(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled, const PlanSetting& setting,
                      const std::vector<Bytes>& limits, Priced& priced) {
  std::vector<Priced> ways(2, priced);
  ways[0].sharing = chooseSharing(setting, ways[0].partition, request.sharing, {});
  ways[1].sharing = chooseSharing(setting, ways[1].partition, request.sharing, limits);
  Priced smallest = ways[0];
  for (std::size_t i = 0; i < smallest.sharing.size() && !request.sharing; ++i) {
    SharingChoice& choice = smallest.sharing[i];
    if (choice.ranks == 1 || choice.sharing == Sharing::Transmit) continue;
    smallest.partition.shared[i].sharing = choice.sharing = Sharing::Transmit;
    choice.forMemory = true;
  }
  ways.push_back(std::move(smallest));
  ways.erase(std::ranges::unique(ways).begin(), ways.end());
  const auto stepOfWay = [&](const Priced& way) {
    CostTable costs = pricedCosts(request, model, compiled, way.partition);
    addOptimizerState(costs, stateCopies(request.optimizer), optimizerShards(request, compiled.rows().placement));
    const Program& program = compiled.timed(costs);
    Times times;
    execute(program, times);
    return stepOf(compiled.rows(), costs, program, times);
  };
  std::optional<std::pair<Bytes, Ns>> best;  // by how much it does not fit, its step
  for (Priced& way : ways) {
    const bool fits = recomputeToFit(setting, way.partition, limits);
    const std::pair found(fits ? Bytes(0) : excessOf(peaksOf(setting, way.partition), limits), ways.size() > 1 ? stepOfWay(way) : Ns(0));
    if (best && found >= *best) continue;
    best = found;
    priced = std::move(way);
  }
}

}  // namespace

CostTable pricedCosts(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled, const Partition& partition) {
  const Schedule& rows = compiled.rows();
  const bool differ = !rows.placement.bidirectional() && distinctReplicas(model.profile(), rows.placement, request.replicas) > 1;
  CostTable costs =
      differ ? costsOfSlowest(request, model, compiled, partition) : model.costTable(partition, rows.placement, request.replicas);
  costs.stages.back().dataBytes += targetBytes(model.graph(), request.loss, request.microbatch);
  costs.microbatchScale = microbatchScale(request, 0);  // whose microbatches are the largest
  requireSummable(costs, shapeOf(rows));
  return costs;
}

Answer<Priced> tryPrice(const PlanRequest& request, ModelCosts& model, CompiledRows& compiled) {
  const ModelGraph& graph = model.graph();
  if (auto no = obstacleToCopies(graph, compiled.rows().placement, model.changedState(),
                                 request.replicas > 1 ? model.changedByInputs() : nullptr))
    return *std::move(no);
  if (!request.replicaBegins.empty()) return tryPriceReplicas(request, model, compiled);
  const Profile& profile = model.profile();
  const Schedule& rows = compiled.rows();
  const Bytes targets = targetBytes(graph, request.loss, request.microbatch);
  const PlanSetting setting{graph,  profile,   rows,   request.replicas, request.optimizer, optimizerShards(request, rows.placement),
                            &model, &compiled, targets};
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
  if (automatic) {
    chooseRecomputed(request, model, compiled, setting, limits, priced);
  } else {
    priced.sharing = chooseSharing(setting, priced.partition, request.sharing, limits);
  }
  priced.costs = pricedCosts(request, model, compiled, priced.partition);
  return priced;
}

}  // namespace pw
