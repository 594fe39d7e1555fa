#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedules/schedule.h"
#include "simulator/model/fingerprint.h"
#include "simulator/model/loss.h"
#include "simulator/partition/partition.h"
#include "simulator/plan/optimizer.h"
#include "simulator/plan/replica_cut.h"
#include "simulator/report/certificate.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {

inline constexpr int kMaxReplicas = 1024;

/// The optimizer that a plan accounts for; a run may use a different one.
struct PlannedOptimizer {
  OptimizerSpec update;  ///< its kind and momentum, which decide what state it has; all else is the run's
  bool zero1 = false;    ///< each replica keeps its share of the state (ZeRO-1)

  bool operator==(const PlannedOptimizer&) const = default;
};

/// Everything needed to run and to predict a pipelined training step of one model. A value with a JSON form.
struct Plan {
  std::vector<std::string> modelFiles;  ///< absolute archive paths
  std::string modelName;
  ModelFingerprint fingerprint;        ///< of the model it was made for; unknown in plans of older versions
  std::vector<std::string> libraries;  ///< absolute paths of the libraries that define its custom operators, to be loaded after LibTorch
  std::int64_t microbatchSize = 1;     ///< samples in a full microbatch
  std::int64_t batch = 1;              ///< samples per step, of all replicas together; the last microbatches may be smaller
  int replicas = 1;                    ///< copies of the pipeline (data parallel): D·R ranks; copy d is ranks [d·R, (d+1)·R)
  Loss loss;
  Partition partition;
  std::vector<std::string> splitNames;        ///< how each stage after the first begins, for display
  Schedule schedule;                          ///< lowered
  CostTable costs;                            ///< everything the simulator needs, so that a plan can be simulated without its model
  Profile profile;                            ///< what the costs come from: measured or estimated, where, per node
  std::optional<Certificate> certificate;     ///< of an order made for these costs: sums of gradients and the optimizer come after its time
  std::optional<PlannedOptimizer> optimizer;  ///< that its memory was checked with; nothing: not known
  /// Where each replica has splits of its own: `partition`, `splitNames` and `costs` are then those of the slowest.
  std::optional<ReplicaCuts> cuts;

  bool operator==(const Plan&) const = default;
};

[[nodiscard]] std::string toJson(const Plan& plan);
/// Throws UsageError for text that is not a plan, has a newer version, or is inconsistent. Checked: every stage, rank and microbatch it
/// names exists, and its costs can be summed without overflow. Node, value and parameter numbers are checked by
/// `requireFits`.
[[nodiscard]] Plan parsePlan(std::string_view json, const std::string& source);

/// Ranks of all replicas.
[[nodiscard]] inline int worldSize(const Plan& plan) { return plan.replicas * static_cast<int>(plan.schedule.rows.size()); }

/// The plan as a replica runs it: with its partition, split names and costs.
[[nodiscard]] Plan ofReplica(Plan plan, int replica);
/// Throws UsageError where replicas are cut differently, for a tool that cuts them alike.
void requireSameSplits(const Plan& plan, std::string_view tool);
/// The costs of a replica.
[[nodiscard]] const CostTable& replicaCosts(const Plan& plan, int replica);
/// The group of `ReplicaCuts::summed` that holds a parameter (index into `ModelGraph::parameters`) that no stages share; the plan must
/// have cuts. Throws UsageError where there is none.
[[nodiscard]] std::size_t summedWith(const ReplicaCuts& cuts, std::size_t parameter);

/// Ranks over which each stage's optimizer state is spread: with ZeRO-1 all that hold it.
[[nodiscard]] inline int optimizerShards(bool zero1, int replicas, const Placement& placement) {
  return zero1 ? replicas * (placement.bidirectional() ? 2 : 1) : 1;
}

/// The costs of a plan with the state of the optimizer that it was made for.
[[nodiscard]] CostTable costsWithOptimizer(const Plan& plan);

/// What the process of each rank of a pipeline holds beside its tensors: `Profile::processBytes` without the loads of operators that none
/// of its stages has, plus what running stages takes. Empty where it is not known.
[[nodiscard]] std::vector<Bytes> processBytes(const Plan& plan);

/// Of a step of this length, by `flopUtilisation` of its profile; 0 where the plan does not train.
[[nodiscard]] double flopUtilisation(const Plan& plan, Ns step);

/// Sizes of the M ≥ 1 microbatches of a batch [samples]: as equal as possible, larger ones first.
[[nodiscard]] std::vector<std::int64_t> microbatchSizes(std::int64_t batch, int microbatches);

}  // namespace pw
