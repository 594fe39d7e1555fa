#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/ids.h"
#include "simulator/layout/layout.h"

namespace pw {

/// What Megatron is started with beside the layout.
struct LayoutSetting {
  int ranks = 1;                            ///< `--pipeline-model-parallel-size`
  std::optional<std::int64_t> layers = {};  ///< `--num-layers`; nothing: as many as the layout has
  std::optional<std::int64_t> mtp = {};     ///< `--mtp-num-layers`; nothing: as many as the layout has
};

/// A rule that a layout breaks: Megatron stops at its start.
struct LayoutProblem {
  std::optional<Stage> stage;  ///< nothing: of the whole layout
  std::string message;

  bool operator==(const LayoutProblem&) const = default;
};

/// Why Megatron-LM refuses the layout; empty: it does not. The rules are those of `PipelineParallelLayerLayout` (its constructor and
/// `validate_layer_layout`) and of `validate_args` (megatron/training/arguments.py): stages divide over the ranks; the first layer is the
/// one E, the last the one L; no t after an m; all m in one stage, the last of its rank; several stages on a rank need two ranks or more.
[[nodiscard]] std::vector<LayoutProblem> problemsOf(const Layout& layout, const LayoutSetting& setting);

/// What is allowed but not what one may expect: empty stages, E or L in another stage than where Megatron builds the embedding and the
/// output layer, MTP layers away from the last rank. One sentence each.
[[nodiscard]] std::vector<std::string> notesOf(const Layout& layout, int ranks);

/// Why Megatron's schedules refuse so many microbatches; nothing: they do not. `group`: `--microbatch-group-size-per-virtual-pipeline-
/// stage`; 0: as many as ranks, its default. (megatron/core/pipeline_parallel/schedules.py)
[[nodiscard]] std::optional<std::string> refusalOfMicrobatches(int ranks, int chunks, int microbatches, int group = 0);

}  // namespace pw
