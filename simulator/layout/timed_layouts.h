#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "simulator/costs/layer_table.h"
#include "simulator/costs/profile.h"
#include "simulator/layout/blocks.h"
#include "simulator/layout/layout.h"
#include "simulator/partition/model_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/runtime/runtime.h"
#include "simulator/step/compiled_rows.h"
#include "simulator/step/execute.h"

namespace pw {

/// What Megatron's schedule is for.
struct LayoutShape {
  int ranks = 1, chunks = 1, microbatches = 1;
  int group = 0;  ///< consecutive microbatches of a chunk; 0: as many as ranks

  [[nodiscard]] int stages() const { return ranks * chunks; }
};

/// Megatron's schedule of that shape, compute-only: 1F1B, or with several chunks interleaved 1F1B. Throws UsageError where
/// `refusalOfMicrobatches` has a reason.
[[nodiscard]] Schedule megatronSchedule(const LayoutShape& shape);

/// Many layouts of one layer table, timed one after the other under one schedule. A layout is the position of each stage's begin among the
/// blocks of the table (`blocksOf`): begins[s − 1] for stage s, ascending; equal ones make empty stages.
class TimedLayouts {
 public:
  /// `costs`: whose topology (links, speeds) counts, and of ranks with costs of their own how fast they compute the whole model. `like`:
  /// optimizer, replicas, recomputation.
  TimedLayouts(const LayerTable& table, const Profile& costs, const LayoutShape& shape, const PlanRequest& like);

  [[nodiscard]] const std::vector<LayoutBlock>& blocks() const { return blocks_; }
  /// Positions where a stage may begin, ascending: E stays first, L last, MTP layers together.
  [[nodiscard]] const std::vector<std::size_t>& places() const { return places_; }
  /// Whether the MTP layers are in the last stage of their rank, as Megatron needs them.
  [[nodiscard]] bool allows(const std::vector<std::size_t>& begins) const;

  struct Times {
    Ns step = 0, makespan = 0;
    std::vector<Bytes> peaks;  ///< by rank
  };
  /// The prediction of a layout as Megatron posts its messages (`megatronRows`). Cost: linear in the actions.
  [[nodiscard]] Times times(const std::vector<std::size_t>& begins) { return *timesWithin(begins, std::numeric_limits<Ns>::max()); }
  /// The same; nothing where the step would be longer than `most` even if no action waited but for its own message, which is known in a
  /// tenth of the time.
  [[nodiscard]] std::optional<Times> timesWithin(const std::vector<std::size_t>& begins, Ns most);
  /// A step that no order of the layout is shorter than: of each rank its work, and one microbatch through the stages before it.
  [[nodiscard]] Ns bound(const std::vector<std::size_t>& begins) const;
  [[nodiscard]] Layout layoutOf(const std::vector<std::size_t>& begins) const;
  /// Forward and backward of a microbatch, of the blocks before each position.
  [[nodiscard]] const std::vector<Ns>& workBefore() const { return work_; }
  /// How many programs have been compiled: two, unless layouts differ in which of their messages take time.
  [[nodiscard]] int compilations() const { return compilations_; }

 private:
  LayoutShape shape_;
  std::vector<LayoutBlock> blocks_;
  std::vector<std::size_t> places_;
  bool sameSpeed_ = true;  ///< of all ranks
  std::size_t firstMtp_ = 0, endMtp_ = 0;
  std::vector<Ns> work_;
  std::vector<std::size_t> nodeOf_;  ///< by position: the node where its block begins
  ModelGraph graph_;                 ///< the table's layers, and around each block layers without work, for empty stages
  Profile profile_;
  PlanRequest request_;
  Schedule rows_;
  RuntimeRows megatron_;  ///< these rows as Megatron runs them
  std::unique_ptr<ModelCosts> model_;
  std::unique_ptr<CompiledRows> compiled_;
  std::optional<Program> ideal_;   ///< of `rows_`, with the times of the layout before
  std::optional<Program> posted_;  ///< likewise of `megatron_`
  int compilations_ = 0;
  pw::Times times_;
};

}  // namespace pw
