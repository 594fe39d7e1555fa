#include "engine/planning/plan_settings.h"

#include <algorithm>

#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/recomputed_ranges.h"
#include "simulator/plan/possible.h"

namespace pw {
namespace {

/// `blocks` of blocks.0, blocks.1, …: each module with numbered children, in the order of the nodes.
std::vector<std::string> numberedContainers(const ModelGraph& graph) {
  std::vector<std::string> containers;
  for (const Node& node : graph.nodes) {
    for (const ModuleFrame& frame : node.modules) {
      const auto dot = frame.path.rfind('.');
      if (dot == std::string::npos || frame.path.find_first_not_of("0123456789", dot + 1) != std::string::npos) continue;
      const std::string container = frame.path.substr(0, dot);
      if (std::ranges::find(containers, container) == containers.end()) containers.push_back(container);
    }
  }
  return containers;
}

/// Whether each of so many ranks stands in the order once.
bool namesEachRank(const std::vector<Rank>& order) {
  std::vector<bool> named(order.size());
  for (const Rank rank : order) {
    if (rank.index() >= named.size() || named[rank.index()]) return false;
    named[rank.index()] = true;
  }
  return true;
}

}  // namespace

std::optional<Recompute> recomputeOf(const Plan& plan, const ModelGraph& graph) {
  const std::vector<InPlaceChange> changes = changesInPlace(graph);
  const auto makes = [&](const Recompute& recompute) {
    Partition trial = plan.partition;
    return !trySetRecompute(graph, trial, recompute, changes) && trial == plan.partition;
  };
  if (makes(RecomputeNone())) return RecomputeNone();
  if (makes(RecomputeFull())) return RecomputeFull();
  for (const std::string& container : numberedContainers(graph)) {
    if (const RecomputeModules modules{{container}}; makes(modules)) return modules;
  }
  return std::nullopt;
}

std::optional<Sharing> sharingOf(const Plan& plan, const ModelGraph& graph, const PlanRequest& request) {
  if (plan.partition.shared.empty()) return std::nullopt;
  ModelCosts model(graph, plan.profile, plan.microbatchSize);
  CompiledRows rows(plan.schedule);
  const Answer<Priced> chosen = tryPrice(request, model, rows);
  if (chosen && chosen->partition.shared == plan.partition.shared) return std::nullopt;
  return plan.partition.shared.front().sharing;  // a request has one for all
}

std::optional<GeneratedRows> generatedAs(const Schedule& schedule, int replicas) {
  const Shape shape = shapeOf(schedule);
  const auto known = std::ranges::find(generators(), schedule.name, &Generator::name);
  if (known == generators().end() || shape.ranks == 0 || shape.stages % shape.ranks != 0 || known->refusal(shape)) return std::nullopt;
  const Schedule usual = generate(schedule.name, shape);
  GeneratedRows generated{shape.stages / shape.ranks, std::vector<Rank>(schedule.rows.size())};
  for (std::size_t s = 0; s < schedule.placement.stages(); ++s)
    generated.rankOrder[usual.placement.rankOfStage[s].index()] = schedule.placement.rankOfStage[s];
  if (usual.placement == schedule.placement) generated.rankOrder.clear();
  if (!namesEachRank(generated.rankOrder)) return std::nullopt;  // its stages are on other ranks than those of any order
  if (planRows(usual, replicas, generated.rankOrder).rows != schedule.rows) return std::nullopt;
  return generated;
}

std::optional<CostSettings> costSettingsOf(const Plan& plan, const ModelGraph& graph) {
  const Profile& profile = plan.profile;
  // Plans of older versions have the name of a preset as that of the host.
  const std::string& named = profile.cluster.empty() && profile.estimated ? profile.machine.host : profile.cluster;
  if (named.empty()) return std::nullopt;
  CostSettings settings{.cluster = named, .isEstimated = profile.estimated};
  std::optional<Cluster> cluster;
  try {
    cluster = loadCluster(named);
  } catch (const UsageError&) {
    return std::nullopt;  // its file is gone
  }
  if (!profile.estimated) return settings;
  settings.precision = profile.computing.precision;
  settings.attention = profile.attention;
  try {
    settings.isAsEstimated = estimate(graph, plan.microbatchSize, *cluster, settings.precision, settings.attention, plan.loss) == profile;
  } catch (const UsageError&) {
    settings.isAsEstimated = false;  // its file has other peaks by now
  }
  return settings;
}

}  // namespace pw
