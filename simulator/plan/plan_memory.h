#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/plan/model_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/report/memory_report.h"

namespace pw {

/// A module's part of a stage. An operator belongs to the outermost numbered module around it (`blocks.2`), else to the outermost one,
/// else to none (empty).
struct ModuleMemory {
  std::string module;
  Bytes activations = 0;  ///< that its operators keep of one microbatch until the backward
  Bytes parameters = 0;   ///< that they are the first of the stage to read

  bool operator==(const ModuleMemory&) const = default;
};

/// A change of the plan that would free memory.
struct MemorySaving {
  std::optional<Stage> recomputed;  ///< the whole stage; nothing: optimizer state spread over the replicas (ZeRO-1)
  Rank rank;                        ///< where it frees most
  Bytes freed = 0;                  ///< of that rank's peak
  Ns step = 0;                      ///< of the plan then

  bool operator==(const MemorySaving&) const = default;
};

/// What a plan's memory is used for.
struct PlanMemory {
  std::vector<RankMemory> ranks;
  std::vector<std::vector<ModuleMemory>> modules;  ///< by stage: those that keep something, in order of execution
  Ns step = 0;                                     ///< of the plan as it is
  std::vector<MemorySaving> savings;               ///< those that free something, most for each ns of the step first
};

/// By module, what the operators of a stage keep; what the stage receives and what the loss keeps are not among them. Of checkpointed
/// ranges nothing is kept. Cost: linear in the stage's nodes.
[[nodiscard]] std::vector<ModuleMemory> memoryByModule(const ModelGraph& graph, const StageSpec& stage, const Profile& profile);

/// Memory of a plan with these rows and this partition, the optimizer's state included; and what would free some: each stage recomputed as
/// a whole where that is possible (not of a layer table), and ZeRO-1. `model`: of the request's microbatch. Cost: as `memoryOf`, and a pass
/// over the schedule for each stage.
[[nodiscard]] PlanMemory memoryOf(const PlanRequest& request, ModelCosts& model, const Schedule& rows, const Partition& partition);

}  // namespace pw
