#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/partition/model_costs.h"
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
  enum class By : std::uint8_t {
    Recomputing,  ///< `stage` as a whole
    Zero1,        ///< the optimizer's state spread over the replicas
    Schedule,     ///< another family of as many stages, `schedule`
    Splits,       ///< balanced by memory instead
  } by = By::Recomputing;
  Stage stage{};
  std::string schedule{};
  int chunks = 0;   ///< of that schedule, with the plan's splits
  Rank rank{};      ///< where a recomputed stage or ZeRO-1 frees most; else the rank that needs the most now
  Bytes freed = 0;  ///< of that rank's peak
  Ns step = 0;      ///< of the plan then

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
/// a whole where that is possible (of a layer table: where it says what is kept then), ZeRO-1, and, where the largest peak of all ranks is
/// lower then, another family or splits balanced by memory. `model`: of the request's microbatch. Cost: as `memoryOf`, and a plan for each
/// of these.
[[nodiscard]] PlanMemory memoryOf(const PlanRequest& request, ModelCosts& model, const Schedule& rows, const Partition& partition);

}  // namespace pw
