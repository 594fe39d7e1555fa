#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/model/fingerprint.h"
#include "simulator/plan/partition.h"
#include "simulator/step/simulate.h"

namespace pw {

inline constexpr int kMaxReplicas = 1024;

/// The optimizer that a plan accounts for; a run may choose another.
struct PlannedOptimizer {
  std::string name;     ///< empty: not known
  int stateCopies = 0;  ///< of each trained parameter
  bool zero1 = false;   ///< each replica keeps its share (ZeRO-1)

  bool operator==(const PlannedOptimizer&) const = default;
};

/// Everything needed to run and to predict a pipelined training step of one model. A value with a JSON form.
struct Plan {
  std::vector<std::string> modelFiles;  ///< absolute archive paths
  std::string modelName;
  ModelFingerprint fingerprint;         ///< of the model it was made for; unknown in plans of older versions
  std::vector<std::string> libraries;   ///< absolute paths of the libraries that define its custom operators, to be loaded after LibTorch
  std::int64_t microbatchSize = 1;      ///< samples in a full microbatch
  std::int64_t batch = 1;               ///< samples per step, of all replicas together; the last microbatches may be smaller
  int replicas = 1;                     ///< copies of the pipeline (data parallel): D·R ranks; copy d is ranks [d·R, (d+1)·R)
  std::string loss = "cross_entropy";   ///< cross_entropy, mse, sum, output:NAME
  Partition partition;
  std::vector<std::string> splitNames;  ///< how each stage after the first begins, for people
  Schedule schedule;                    ///< lowered
  CostTable costs;                      ///< what the simulator needs; so a plan can be simulated without its model
  Profile profile;                      ///< what the costs come from: measured or estimated, where, per node
  PlannedOptimizer optimizer;           ///< what its memory was checked with

  bool operator==(const Plan&) const = default;
};

[[nodiscard]] std::string toJson(const Plan& plan);
/// Throws UsageError for text that is no plan, of a newer version, or whose parts do not fit together: every stage, rank and microbatch it
/// names exists, and its costs can be summed without overflow. Node, value and parameter numbers are checked by `requireFits`.
[[nodiscard]] Plan parsePlan(std::string_view json, const std::string& source);

/// Throws UsageError, naming what does not fit, when the plan was not made for this graph: it has another fingerprint, another number of nodes, or
/// lacks a value, parameter, buffer or constant, or has it in another place. Without a fingerprint what stages compute is not checked.
void requireFits(const Plan& plan, const ModelGraph& graph);

/// Ranks of all replicas.
[[nodiscard]] inline int worldSize(const Plan& plan) { return plan.replicas * static_cast<int>(plan.schedule.rows.size()); }

/// Sizes of the M ≥ 1 microbatches of a batch [samples]: as equal as possible, larger ones first.
[[nodiscard]] std::vector<std::int64_t> microbatchSizes(std::int64_t batch, int microbatches);

/// The simulator's costs for this partition under this placement, for `replicas` copies of the pipeline; the profile must be of this graph.
/// Times: sums of node costs and an overhead for each action; of recomputed nodes their forward again; of checkpointed ranges their forward
/// again in B and I. W takes the nodes' weight parts; where the profile knows none, half of B. One message for all transfers between two stages.
/// Memory: values from other ranks count as activations, those of the same rank as their producer's alone. Of a checkpointed range stays what
/// nodes behind it use. A profile in 16 bits adds the copies of float32 parameters that matrix products and the like read. A profile without the
/// memory of backwards is taken to free what each node saved.
/// Between ranks: a stage's own gradients of n bytes on D ranks (replicas, and both of a bidirectional placement) go round in a ring,
/// 2 (D − 1) latencies and 2 (D − 1) / D · n over the link. A shared parameter on k ranks: a latency and (k − 1) · n to bring the gradients
/// together, with Transmit the same again for the values, and with replicas a ring besides.
[[nodiscard]] CostTable costTable(const ModelGraph& graph, const Partition& partition, const Profile& profile,
                                  const Placement& placement, int replicas = 1);

/// Counts the optimizer's state: `copies` of what a stage updates (momentum 1, Adam 2), spread over `shards` ≥ 1 ranks (ZeRO-1). The optimizer is
/// bound by memory and was measured reading gradient and weight and writing the weight: each copy is read and written too. Call once.
void addOptimizerState(CostTable& costs, int copies, int shards);

}  // namespace pw
