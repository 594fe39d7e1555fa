#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "simulator/partition/recomputed_ranges.h"
#include "simulator/partition/stage_cutter.h"
#include "simulator/partition/stage_fold.h"

namespace pw {

/// Partitions and costs of one model at one microbatch size for many different cuts: each stage is cut and folded once and cached by its
/// range. Keeps references to graph and profile. May be used by several threads at once.
class ModelCosts {
 public:
  /// `microbatch` [samples]: for the sizes of messages; usually the profile's own. Throws UsageError when the profile is of another graph.
  ModelCosts(const ModelGraph& graph, const Profile& profile, std::int64_t microbatch);

  [[nodiscard]] const ModelGraph& graph() const { return graph_; }
  [[nodiscard]] const Profile& profile() const { return profile_; }
  [[nodiscard]] const std::vector<InPlaceChange>& changes() const { return changes_; }
  [[nodiscard]] const StateTensor* changedState() const { return changedState_; }        ///< `firstChangedState`
  [[nodiscard]] const StateTensor* changedByInputs() const { return changedByInputs_; }  ///< `parameterChangedByInputs`

  /// As `cutGraph`, with the profile's costs; or why the graph cannot be cut so. Cost: linear in stages, and in the nodes of stages that
  /// are new.
  Answer<Partition> cut(const std::vector<NodeId>& begins);
  /// As `pw::costTable`, of a partition that `cut` made. Stages that recompute all or nothing are kept. Cost: likewise.
  [[nodiscard]] CostTable costTable(const Partition& partition, const Placement& placement, int replicas, std::optional<int> only = {});

 private:
  Answer<std::shared_ptr<const StageCut>> cutOf(const NodeRange& range, Stage number);
  /// With the profile's costs, or those that ranks have of their own.
  std::shared_ptr<const FoldedStage> foldOf(const StageSpec& stage, const Profile& profile);

  const ModelGraph& graph_;
  const Profile& profile_;
  std::vector<InPlaceChange> changes_;
  const StateTensor *changedState_, *changedByInputs_;
  StageCutter cutter_;
  std::map<const Profile*, StageFolds> folds_;  ///< the profile's, and those that its ranks have of their own
  std::mutex mutex_;                            ///< of the two below
  std::map<std::pair<NodeId, NodeId>, std::shared_ptr<const StageCut>> cuts_;
  /// By range, whether it is recomputed, and by whose costs.
  std::map<std::tuple<NodeId, NodeId, bool, const Profile*>, std::shared_ptr<const FoldedStage>> folded_;
};

}  // namespace pw
