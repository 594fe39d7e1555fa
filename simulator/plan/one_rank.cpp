#include "simulator/plan/one_rank.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "schedules/units.h"
#include "simulator/costs/rank_profiles.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/simulate.h"

namespace pw {

namespace {

/// On the first rank of the costs' topology, whatever fits there.
OneRank onFirst(const PlanRequest& request, ModelCosts& model, bool trains) {
  PlanRequest alone = request;
  alone.ranks = alone.chunks = 1;
  alone.begins.clear();
  alone.replicaBegins.clear();
  alone.rankOrder.clear();
  alone.recompute = RecomputeNone();
  const Schedule rows = planRows(generate(trains ? "1f1b" : "forward-only", {1, 1, alone.microbatches}), alone.replicas);
  CompiledRows compiled(rows);
  CostTable costs = price(alone, model, compiled).costs;
  addOptimizerState(costs, stateCopies(alone.optimizer), optimizerShards(alone, rows.placement));
  const Metrics metrics = metricsOf(simulate(rows, costs));
  return {metrics.step, metrics.ranks.front().peakBytes, {}, request.replicas};
}

/// As many ranks as there are replicas that the peak fits: the fastest, then the first; nothing where there are fewer.
std::optional<std::vector<JobRank>> fastestThatHold(const Profile& profile, Bytes peak, int replicas) {
  const Topology& topology = profile.topology;
  std::vector<JobRank> ranks;
  for (std::size_t r = 0; r < topology.ranks.size(); ++r) {
    if (excessOf(peak, topology.ranks[r].memoryBytes) == 0) ranks.emplace_back(r);
  }
  const auto count = static_cast<std::size_t>(replicas);
  if (ranks.size() < count) return std::nullopt;
  std::ranges::stable_sort(ranks, [&](JobRank a, JobRank b) { return speedOf(profile, a) > speedOf(profile, b); });
  ranks.resize(count);
  return ranks;
}

bool differ(const std::vector<RankSpec>& ranks) {
  const auto isOther = [&](const RankSpec& rank) {
    return rank.speed != ranks.front().speed || rank.own != ranks.front().own || rank.memoryBytes != ranks.front().memoryBytes;
  };
  return std::ranges::any_of(ranks, isOther);
}

}  // namespace

std::optional<OneRank> onOneRank(const PlanRequest& request, ModelCosts& model, bool trains) {
  const Topology& topology = model.profile().topology;
  OneRank one = onFirst(request, model, trains);
  if (!differ(topology.ranks)) {
    PlanRequest alone = request;
    alone.ranks = 1;
    return excessOf(one.peak, memoryLimits(alone, model.profile(), 1).front()) > 0 ? std::nullopt : std::optional(one);
  }
  const auto ranks = fastestThatHold(model.profile(), one.peak, request.replicas);
  if (!ranks || excessOf(one.peak, request.memoryLimit) > 0) return std::nullopt;
  Profile there = model.profile();
  there.topology = topologyOf(topology, *ranks);
  ModelCosts fastest(model.graph(), there, request.microbatch);
  one = onFirst(request, fastest, trains);
  one.rank = ranks->front();
  return one;
}

std::string toString(const OneRank& one, Ns pipelined) {
  const std::string where = one.replicas > 1 ? "one rank for each replica"
                            : one.rank       ? fmt::format("rank {} alone", one.rank->value)
                                             : "one rank";
  if (one.step <= pipelined)
    return fmt::format("One device{} suffices: the whole model takes {} per step on {}, with {} of memory.",
                       one.replicas > 1 ? " for each replica" : "", formatDuration(one.step), where, formatSize(one.peak));
  return fmt::format("On {} the step would take {} ({:.2f} times as long).", where, formatDuration(one.step),
                     static_cast<double>(one.step) / static_cast<double>(pipelined));
}

}  // namespace pw
