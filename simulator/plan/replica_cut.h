#pragma once

#include <string>
#include <vector>

#include "simulator/partition/partition.h"
#include "simulator/step/cost_table.h"

namespace pw {

/// Where one replica's stages begin, and what they cost on its ranks, where replicas differ in their splits.
struct ReplicaCut {
  Partition partition;
  std::vector<std::string> splitNames;  ///< how each stage after the first begins, for display
  CostTable costs;                      ///< without optimizer state

  bool operator==(const ReplicaCut&) const = default;
};

/// Parameters that are in one stage of each replica, the same for all of them: their gradients are summed together. Parameters that several
/// stages of a replica share are in none (`Partition::shared`).
struct SummedParameters {
  std::vector<Stage> stages;  ///< by replica
  Bytes bytes = 0;            ///< of their gradients

  bool operator==(const SummedParameters&) const = default;
};

/// All replicas of a pipeline, each cut for its own ranks. They have the same schedule and the same number of stages.
struct ReplicaCuts {
  std::vector<ReplicaCut> replicas;
  std::vector<SummedParameters> summed;
  int shown = 0;  ///< the replica that the plan's partition and costs are of: the one that ends last, as long as whose step a step takes;
                  ///< in a run the rank's own

  bool operator==(const ReplicaCuts&) const = default;
};

}  // namespace pw
