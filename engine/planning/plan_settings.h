#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/partition/recompute.h"
#include "simulator/plan/plan.h"
#include "simulator/plan/planner.h"

namespace pw {

/// The setting that leads to the plan's checkpoints on its own graph: none, all, or the numbered children of one module. Nothing where none
/// of them does. Cost: as `trySetRecompute`, once for each module with numbered children.
[[nodiscard]] std::optional<Recompute> recomputeOf(const Plan& plan, const ModelGraph& graph);

/// How parameters that several stages use are kept equal, where a request with the plan's own settings and rows would choose another way
/// than the plan has; else nothing. `request`: without a sharing. Cost: as `tryPrice`.
[[nodiscard]] std::optional<Sharing> sharingOf(const Plan& plan, const ModelGraph& graph, const PlanRequest& request);

/// How the generator of the schedule's name makes its rows.
struct GeneratedRows {
  int chunks = 0;               ///< stages per rank
  std::vector<Rank> rankOrder;  ///< as of `PlanRequest::rankOrder`

  bool operator==(const GeneratedRows&) const = default;
};

/// Of the rows of a plan with so many replicas; nothing where the generator makes others, or there is none of that name.
[[nodiscard]] std::optional<GeneratedRows> generatedAs(const Schedule& schedule, int replicas);

/// What a plan's costs come from, in the settings they can be estimated again with.
struct CostSettings {
  std::string cluster;  ///< of `loadCluster`
  DType precision = DType::Unknown;
  Attention attention = Attention::AsTraced;
  bool isEstimated = false;    ///< for that cluster, in that precision and attention; else they were measured on such a cluster
  bool isAsEstimated = false;  ///< an estimate with these settings leads to the plan's costs again
};

/// Nothing where the plan names no cluster, or one that is no longer found here.
[[nodiscard]] std::optional<CostSettings> costSettingsOf(const Plan& plan, const ModelGraph& graph);

}  // namespace pw
