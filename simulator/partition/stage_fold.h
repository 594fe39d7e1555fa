#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "simulator/partition/partition.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {

/// The costs of one stage that do not depend on where other stages are: times, state, and memory as a function of what it receives.
struct FoldedStage {
  StageCost cost;  ///< times; state bytes; no activations and peaks
  Bytes forwardLevel = 0, forwardPeak = 0;
  Bytes backwardPeak = 0, inputPeak = 0;  ///< above what was kept at their start, and the gradients that the stage receives
  Bytes held = 0, weightPeak = 0;         ///< for W
  bool splits = false;                    ///< whether the profile has the parts of backwards
  std::vector<ValueId> copied;            ///< of what it receives: its operators change it in place, in a copy of their own
  std::vector<ValueId> released;          ///< made in a recomputed range and without gradient: in memory only while others hold it
  /// Of what it receives, what its Ws hold, each tensor once, by value; with the bytes.
  std::vector<std::pair<ValueId, Bytes>> heldInputs;
  bool complete = false;  ///< of a layer table: `cost` has all memory, and what it receives adds nothing

  /// `received`: values from other ranks and model inputs; `gradientsIn`: gradients of the stage's outputs; in bytes.
  [[nodiscard]] StageCost with(Bytes received, Bytes gradientsIn) const;
};

class FoldTables;

/// Folds the costs of a model's nodes into costs of stages, many times: facts about the whole graph are computed once. Keeps references to
/// graph and profile. Its functions are const and may be called by several threads at once.
class StageFolds {
 public:
  /// The profile must be of this graph.
  StageFolds(const ModelGraph& graph, const Profile& profile);
  ~StageFolds();
  StageFolds(const StageFolds&) = delete;
  StageFolds& operator=(const StageFolds&) = delete;

  /// Cost: linear in the stage's nodes.
  [[nodiscard]] FoldedStage fold(const StageSpec& stage) const;

 private:
  std::unique_ptr<const FoldTables> tables_;
};

/// Folds a stage with costs that a rank has of its own.
using FoldWith = std::function<std::shared_ptr<const FoldedStage>(const StageSpec& stage, const Profile& own)>;

/// What `costTable` makes of stages folded one by one. Cost: linear in stages, transfers and shared parameters.
[[nodiscard]] CostTable assembleCosts(const std::vector<std::shared_ptr<const FoldedStage>>& stages, const Partition& partition,
                                      const Profile& profile, const Placement& placement, int replicas, const FoldWith& foldWith,
                                      std::optional<int> only = {});

}  // namespace pw
