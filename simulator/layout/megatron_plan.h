#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/layout/layout.h"
#include "simulator/plan/plan.h"

namespace pw {

/// A plan as arguments of Megatron-LM's training scripts.
struct MegatronPlan {
  Layout layout;
  int ranks = 1, chunks = 1;
  std::vector<std::string> flags;  ///< one argument with its value each: `--pipeline-model-parallel-size 4`
  std::vector<std::string> notes;  ///< sentences: what Megatron does differently from the plan, or not at all
  bool exact = false;              ///< schedule, placement and splits are the plan's
  bool fits = true;                ///< within the limits of memory
  Ns planStep = 0, step = 0;       ///< predicted: of the plan, and of what Megatron runs, as it posts its messages (`megatronRows`)
};

/// The nearest that Megatron can run. Transformer layers are the numbered ones of the model (`blocksOf`). The plan's stages are kept where
/// Megatron can place and cut them: a loop of 1F1B or interleaved 1F1B, between transformer layers. Otherwise, with a note that says why,
/// the layout is the one with the shortest predicted step of as many ranks and stages (`bestLayout`), within `memoryLimit` (of every rank;
/// 0: none but the ranks' own). `layers`: of a plan of a job's stages, how many the model has (`withLayers`). Throws UsageError for a plan
/// that does not fit the graph, that does not train, or of a model with fewer layers than ranks. Cost: as `bestLayout`.
[[nodiscard]] MegatronPlan megatronPlan(const Plan& plan, const ModelGraph& graph, std::optional<std::int64_t> layers = {},
                                        Bytes memoryLimit = 0);

/// The arguments as a file for bash to source: the array MEGATRON_ARGUMENTS, one argument with its value a line, after notes as comments.
[[nodiscard]] std::string toText(const MegatronPlan& megatron, const Plan& plan);
/// As JSON: `layout`, `flags[]`, `notes[]`, `exact`, `fits`, `plan_step_ns`, `step_ns`, …
[[nodiscard]] std::string toJson(const MegatronPlan& megatron);

}  // namespace pw
