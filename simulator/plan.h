#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/partition.h"
#include "simulator/simulate.h"

namespace pw {

/// Everything needed to run and to predict a pipelined training step of one model. A value with a JSON form.
struct Plan {
  std::vector<std::string> modelFiles;  ///< absolute archive paths
  std::string modelName;
  std::int64_t microbatchSize = 1;      ///< samples in a full microbatch
  std::int64_t batch = 1;               ///< samples per step; the last microbatches may be smaller
  std::string loss = "cross_entropy";   ///< cross_entropy, mse, sum, output:NAME
  Partition partition;
  std::vector<std::string> splitNames;  ///< how each stage after the first begins, for people
  Schedule schedule;                    ///< lowered
  CostTable costs;                      ///< what the simulator needs; so a plan can be simulated without its model
  Profile profile;                      ///< what the costs come from: measured or estimated, where, per node

  bool operator==(const Plan&) const = default;
};

[[nodiscard]] std::string toJson(const Plan& plan);
/// Throws UsageError for text that is no plan, of a newer version, or whose parts do not fit together: every stage, rank and microbatch it
/// names exists, and its costs can be summed without overflow. Node, value and parameter numbers are checked by `requireFits`.
[[nodiscard]] Plan parsePlan(std::string_view json, const std::string& source);

/// Throws UsageError, naming what does not fit, when the plan was not made for this graph: another number of nodes, or a value,
/// parameter, buffer or constant that the graph lacks or that is not where the plan says. What stages compute is not checked.
void requireFits(const Plan& plan, const ModelGraph& graph);

/// Sizes of the M ≥ 1 microbatches of a batch [samples]: as equal as possible, larger ones first.
[[nodiscard]] std::vector<std::int64_t> microbatchSizes(std::int64_t batch, int microbatches);

/// The simulator's costs for this partition under this placement: sums of node costs, and of recomputed nodes their forward again; one
/// message for all transfers between two stages; received values count as activations. Replicated gradients are reduced by one message
/// for each further rank that holds them. Until they are measured apart, I and W each take half of B.
/// The profile must be of this graph.
[[nodiscard]] CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile,
                                  const Placement& placement);

}  // namespace pw
