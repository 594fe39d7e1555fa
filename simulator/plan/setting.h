#pragma once

#include <vector>

#include "schedules/schedule.h"
#include "simulator/model/loss.h"
#include "simulator/partition/partition.h"
#include "simulator/plan/optimizer.h"
#include "simulator/step/cost_table.h"

namespace pw {

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
  Bytes targets = 0;                 ///< of a microbatch's loss: on the last stage, of all microbatches all the time, as inputs are
};

/// Of the targets that a loss compares the model's first output with, of a microbatch of so many samples: a class for each row, or a value
/// for each of its; 0 where it has none or their size depends on data, and of a layer table.
[[nodiscard]] Bytes targetBytes(const ModelGraph& graph, const Loss& loss, std::int64_t microbatch);

/// The costs with the optimizer's state, and the most memory of each rank.
[[nodiscard]] CostTable costsOf(const PlanSetting& setting, const Partition& partition);
[[nodiscard]] std::vector<Bytes> peaksOf(const PlanSetting& setting, const Partition& partition);

}  // namespace pw
