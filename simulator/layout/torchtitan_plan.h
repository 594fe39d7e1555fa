#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/plan/plan.h"

namespace pw {

/// A plan as torchtitan's settings (names as in torchtitan 0.3, torchtitan/config/configs.py).
struct TorchtitanPlan {
  std::vector<std::vector<std::string>> modules;  ///< `module_fqns_per_model_part`: of each stage
  std::string schedule;                           ///< schedule.csv: compute actions in torch's notation
  std::vector<std::string> arguments;             ///< one argument with its value each, but that of the CSV's path
  std::string python;              ///< the same as `ParallelismConfig` and `TrainingConfig`; the CSV is `schedule.csv`, beside the program
  std::vector<std::string> notes;  ///< sentences

  bool operator==(const TorchtitanPlan&) const = default;
};

/// Modules are those of the model where it is named like torchtitan's (`tok_embeddings`, `layers.0`, …); of another model, or a layer
/// table, they become these names in their order, with a note. Throws UsageError for what torchtitan cannot run: a placement that is
/// neither a loop nor a V of two stages, a stage that begins inside a numbered module, a parameter of several stages, one rank, a plan that
/// does not fit the graph or train. `layers`: of a plan of a job's stages, how many the model has (`withLayers`); a stage that begins
/// within one begins at the nearest. Cost: linear.
[[nodiscard]] TorchtitanPlan torchtitanPlan(const Plan& plan, const ModelGraph& graph, std::optional<std::int64_t> layers = {});

}  // namespace pw
