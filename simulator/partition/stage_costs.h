#pragma once

#include <optional>
#include <vector>

#include "schedules/answer.h"
#include "simulator/partition/partition.h"
#include "simulator/step/cost_table.h"

namespace pw {

/// The simulator's costs for this partition under this placement, for `replicas` copies of the pipeline; the profile must be of this graph.
/// Times: sums of node costs and an overhead for each action; of recomputed nodes their forward again; of checkpointed ranges their forward
/// again in B and I. W takes the nodes' weight parts; if the profile has none, half of B. One message for all transfers between two stages.
/// Memory: values from other ranks count as activations, those of the same rank as their producer's alone. Of a checkpointed range, what
/// later nodes use is kept. A profile in 16 bits adds the copies of float32 parameters that matrix products and the like read. Without
/// measured backward memory, each backward is assumed to free what its node saved. Between ranks: a stage's own gradients of n bytes on D
/// ranks (replicas, and both of a bidirectional placement) are reduced in a ring, 2 (D − 1) latencies and 2 (D − 1) / D · n over the link.
/// A shared parameter on k ranks: a latency and (k − 1) · n to collect the gradients, with Transmit the same again for the values, plus a
/// ring with replicas. Of a layer table exactly what it says (`Profile::sent`): no memory for messages, gradients or while an action runs.
/// On ranks of the profile's topology: times are those of the rank's costs and speed, and messages those of its links, of the longest
/// replica at each place or of `only` one; rings are those of the slowest link (`PipelineTopology`). Throws UsageError where it lists too
/// few ranks, and where a bidirectional placement has a stage on two ranks that differ in speed.
[[nodiscard]] CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile, const Placement& placement,
                                  int replicas = 1, std::optional<int> only = {});

/// The ranks of a pipeline that hold one of these stages, ascending.
[[nodiscard]] std::vector<Rank> holdersOf(const std::vector<Stage>& stages, const Placement& placement);

/// Why a job of so many ranks cannot run on the profile's topology, which lists fewer; nothing where it can. `costTable` and
/// `stageSpeeds` throw the same.
[[nodiscard]] std::optional<Impossible> lackOfRanks(const Profile& profile, int ranks);
/// Why `costTable` would throw for this placement; nothing where it would not.
[[nodiscard]] std::optional<Impossible> obstacleToPlace(const Profile& profile, const Placement& placement, int replicas);

/// How each stage is computed where it is. Empty where all ranks are as fast as the profile says. Throws UsageError where the topology
/// lists too few ranks.
[[nodiscard]] StageSpeeds stageSpeeds(const Profile& profile, const Placement& placement, int replicas, std::optional<int> only = {});
/// Replicas from this one on find what earlier ones do (`PipelineTopology::distinct`).
[[nodiscard]] int distinctReplicas(const Profile& profile, const Placement& placement, int replicas);

/// Adds the optimizer's state: `copies` of what a stage updates (momentum 1, Adam 2), spread over `shards` ≥ 1 ranks (ZeRO-1). The
/// optimizer is bound by memory and was measured reading gradient and weight and writing the weight: each copy is read and written too.
/// Call once.
void addOptimizerState(CostTable& costs, int copies, int shards);

}  // namespace pw
