#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/partition/recompute.h"
#include "simulator/plan/plan.h"

namespace pw {

/// The node ranges of modules by name, as `inspect` shows them: each call of `blocks.2`; for a name that is not a module itself, like
/// `blocks`, each call of each of its numbered children separately. Adjacent calls are merged. Ascending and disjoint; of nested ranges the
/// outer is kept. Throws UsageError for any other name. Cost: linear in nodes times names.
[[nodiscard]] std::vector<NodeRange> moduleRanges(const ModelGraph& graph, const std::vector<std::string>& names);

/// Why a range's forward cannot run again: an operator in it, or later, changes in place what enters the range, or it changes a buffer
/// other than batch norm's statistics (which a second run leaves alone). Returns a sentence that names the operator; nothing when it can.
/// Sub-graphs with an operator in place count as changing all they read. Cost: linear in nodes times the depth of views.
[[nodiscard]] std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range);

/// A node that writes in place, and the values it changes (none of them views).
struct InPlaceChange {
  NodeId node;
  std::vector<ValueId> bases;
};
/// All of a graph, in order. Cost: linear in nodes times the depth of views.
[[nodiscard]] std::vector<InPlaceChange> changesInPlace(const ModelGraph& graph);
/// The same answer with the changes of the graph at hand. Cost: linear in the range, or nothing where no change comes after its begin.
[[nodiscard]] std::optional<std::string> obstacleToRecompute(const ModelGraph& graph, const NodeRange& range,
                                                             const std::vector<InPlaceChange>& changes);

/// Sets what every stage recomputes, cut at stage borders; of RecomputeAuto nothing yet (`recomputeToFit`). Throws UsageError for unknown
/// names and where there is an obstacle.
void setCheckpoints(const ModelGraph& graph, Partition& partition, const Recompute& recompute);
void setCheckpoints(const ModelGraph& graph, Partition& partition, const Recompute& recompute, const std::vector<InPlaceChange>& changes);

class CompiledRows;
class ModelCosts;

/// What a plan is made for.
struct PlanSetting {
  const ModelGraph& graph;
  const Profile& profile;
  const Schedule& schedule;  ///< lowered
  int replicas = 1;
  OptimizerSpec optimizer = {};  ///< whose state counts
  int optimizerShards = 1;       ///< ranks that share it (ZeRO-1)
  // Caches kept from one plan to the next; null: computed each time.
  ModelCosts* model = nullptr;       ///< of graph and profile
  CompiledRows* compiled = nullptr;  ///< of the schedule
};

/// The costs with the optimizer's state, and the most memory of each rank.
[[nodiscard]] CostTable costsOf(const PlanSetting& setting, const Partition& partition);
[[nodiscard]] std::vector<Bytes> peaksOf(const PlanSetting& setting, const Partition& partition);

/// Recomputes whole stages until no rank needs more than its limit (0: none): as long as one does, of the first such rank's stages the one
/// that saves most for each ns of its forward (ties: the lower stage); stages with an obstacle stay. Starts from the partition without
/// checkpoints. Returns whether all ranks fit. Cost: a compilation of the schedule, and a pass over its ranks' rows for each stage taken.
[[nodiscard]] bool recomputeToFit(const PlanSetting& setting, Partition& partition, const std::vector<Bytes>& limits);

}  // namespace pw
