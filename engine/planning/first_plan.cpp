#include "engine/planning/first_plan.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "backends/resources/resources.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/model/graph_facts.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/possible.h"
#include "simulator/step/compiled_rows.h"

namespace pw {
namespace {

constexpr const char* kUsual = "cpu-workstation";
constexpr int kUsualRanks = 4, kMostRanks = 128;

/// Smallest device first.
std::vector<Cluster> clustersFor(const std::string& preferred) {
  if (!preferred.empty()) return {loadCluster(preferred)};
  std::vector<Cluster> clusters;
  for (const std::string& name : clusterPresets()) {
    if (name == kUsual || !name.starts_with("cpu-")) clusters.push_back(loadCluster(name));
  }
  std::ranges::stable_sort(clusters, {}, &Cluster::memoryBytes);
  return clusters;
}

/// How many ranks it has; one that does not list them has as many as are needed.
int ranksOf(const Cluster& cluster) {
  return cluster.topology.ranks.empty() ? kMostRanks : static_cast<int>(cluster.topology.ranks.size());
}

/// At most `most`, except where the model is marked.
std::vector<int> rankCounts(const ModelGraph& graph, int most) {
  if (!graph.splitMarkers.empty()) return {static_cast<int>(graph.splitMarkers.size()) + 1};
  std::vector<int> counts{std::min(kUsualRanks, most)};
  for (int ranks = 2 * kUsualRanks; ranks <= std::min(kMostRanks, most); ranks *= 2) counts.push_back(ranks);
  return counts;
}

/// Of the rank that needs the most; nothing where that cannot be predicted, or not be recomputed.
std::optional<Bytes> peakOf(const ModelGraph& graph, const Profile& profile, const FirstPlan& plan) {
  PlanRequest request;
  request.ranks = plan.ranks;
  request.microbatches = 2 * plan.ranks;
  request.microbatch = profile.microbatch;
  request.begins = plan.begins;
  request.loss = defaultLoss(graph);
  if (plan.recomputes) request.recompute = RecomputeFull();
  const Schedule rows = planRows(generate("1f1b", {plan.ranks, plan.ranks, request.microbatches}), 1);
  ModelCosts model(graph, profile, request.microbatch);
  CompiledRows compiled(rows);
  Answer<Priced> priced = tryPrice(request, model, compiled);
  if (!priced) return std::nullopt;
  addOptimizerState(priced->costs, stateCopies(request.optimizer), 1);
  return std::ranges::max(compiled.peaks(priced->costs));
}

/// What each of the first ranks of a cluster holds at least.
Bytes leastMemory(const Cluster& cluster, int ranks) {
  Bytes least = cluster.memoryBytes;
  const std::vector<RankSpec>& own = cluster.topology.ranks;
  for (std::size_t r = 0; r < own.size() && std::cmp_less(r, ranks); ++r) {
    if (own[r].memoryBytes > 0) least = std::min(least, own[r].memoryBytes);
  }
  return least;
}

/// Balanced by time for the speeds of the cluster's ranks, as far as it lists them.
std::vector<NodeId> balancedOn(const ModelGraph& graph, const Profile& profile, int ranks) {
  if (lackOfRanks(profile, ranks)) return balancedSplits(graph, profile, ranks, Balance::Time);
  const Placement placement = loopPlacement({ranks, ranks, 1});
  return balancedSplits(graph, profile, ranks, Balance::Time, stageSpeeds(profile, placement, 1));
}

}  // namespace

FirstPlan firstPlan(const ModelGraph& graph, const std::string& preferred) {
  const std::int64_t microbatch = exportedBatch(graph);
  const int places = static_cast<int>(splitPoints(graph, bindBatch(graph, microbatch)).size());
  const bool layers = isLayerChain(graph);
  FirstPlan plan{preferred.empty() ? kUsual : preferred, 1, {}, false, true};
  std::vector<Cluster> clusters = clustersFor(layers ? plan.cluster : preferred);
  const Profile bytes = layers ? profileOf(graph) : estimate(graph, microbatch, clusters.front());  // which are the same on all
  const int most = ranksOf(std::ranges::max(clusters, {}, ranksOf));
  for (const int ranks : rankCounts(graph, std::min(places + 1, most))) {
    plan.ranks = ranks;
    plan.begins = !graph.splitMarkers.empty() ? graph.splitMarkers : ranks > 1 ? balancedOn(graph, bytes, ranks) : std::vector<NodeId>();
    if (layers) return plan;
    for (const bool recomputes : {false, true}) {
      plan.recomputes = recomputes;
      const std::optional<Bytes> peak = peakOf(graph, bytes, plan);
      if (!peak && recomputes) break;
      for (auto at = clusters.begin(); at != clusters.end(); ++at) {
        const Cluster& cluster = *at;
        plan.cluster = cluster.origin;
        plan.fits = ranks <= ranksOf(cluster) && peak.value_or(Bytes{0}) <= leastMemory(cluster, ranks);
        if (!plan.fits) continue;
        for (auto larger = at + 1; larger != clusters.end(); ++larger) {
          if (ranks <= ranksOf(*larger)) plan.others.push_back(larger->origin);
        }
        if (cluster.origin == clusters.front().origin || !graph.splitMarkers.empty() || ranks == 1) return plan;
        FirstPlan balanced = plan;  // by the times of this cluster, if it fits so, too
        balanced.begins = balancedOn(graph, estimate(graph, microbatch, cluster), ranks);
        return peakOf(graph, bytes, balanced).value_or(Bytes{0}) <= leastMemory(cluster, ranks) ? balanced : plan;
      }
    }
  }
  return plan;
}

}  // namespace pw
