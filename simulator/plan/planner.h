#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/partition/recompute.h"
#include "simulator/partition/split.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/optimizer.h"
#include "simulator/plan/plan.h"
#include "simulator/plan/sharing.h"

namespace pw {

/// What a user decides about a plan of one model. A 0 stands for the default: the family's chunks, microbatches of equal size.
struct PlanRequest {
  std::string schedule = "1f1b";
  int ranks = 2;
  int chunks = 0;  ///< stages per rank; 0: the family's default
  int microbatches = 8;
  int replicas = 1;
  std::int64_t microbatch = 1;  ///< samples in a full microbatch
  std::int64_t batch = 0;       ///< samples per step over all replicas; 0: all microbatches are full
  std::vector<NodeId> begins;   ///< where stages 1, 2, … begin
  /// By replica, where each has begins of its own; `begins` are then those of the slowest. Empty: all replicas are cut alike.
  std::vector<std::vector<NodeId>> replicaBegins;
  Loss loss;
  Recompute recompute = RecomputeNone();  ///< RecomputeAuto: as little as `memoryLimit` allows
  std::optional<Sharing> sharing;         ///< of parameters used by several stages; nothing: whichever makes the step shorter
  OptimizerSpec optimizer;                ///< whose state is counted in memory and time; a run may use another
  bool zero1 = false;                     ///< each replica keeps its share of that state (ZeRO-1)
  Bytes memoryLimit = 0;                  ///< of every rank; 0: none but their own
  std::vector<Rank> rankOrder;            ///< what the schedule gives to rank i is done by rank `rankOrder[i]`; empty: by i itself

  bool operator==(const PlanRequest&) const = default;
};

/// The default number of stages per rank: 1 for `auto`, else the family's. Throws UsageError for an unknown name.
[[nodiscard]] int usualChunks(std::string_view schedule);

/// The default number of microbatches: 4R if the batch [samples] is not known (0). Otherwise, of each replica's part of the batch: as many
/// as hold it with at most `microbatch` samples each; if any size will do (0), the largest number up to 4R that divides the batch evenly,
/// if it is at least R; else one for each sample, up to 4R.
[[nodiscard]] int defaultMicrobatches(int ranks, int replicas, std::int64_t batch, std::int64_t microbatch);

/// Samples per step over all replicas, and in a full microbatch.
struct BatchSizes {
  std::int64_t batch = 0, microbatch = 0;
};

/// Derives the size that is 0 from the other (both: microbatches as exported), for `parts` microbatches of all replicas together. Throws
/// UsageError where the two contradict each other, or the model cannot take such microbatches.
[[nodiscard]] BatchSizes settledBatch(BatchSizes sizes, int parts, const ModelGraph& graph);

/// Whether gradients are summed between ranks: replicas, or a bidirectional placement.
[[nodiscard]] bool reducesGradients(const Placement& placement, int replicas);

/// The rows of a plan of this compute-only schedule: lowered, with its ranks in this order (`PlanRequest::rankOrder`), and REDUCE_GRAD
/// where gradients are summed between ranks. Throws UsageError for an order that does not name each rank once.
[[nodiscard]] Schedule planRows(const Schedule& schedule, int replicas, const std::vector<Rank>& rankOrder = {});

/// The placement of the schedule that a request names, with the request's order of ranks: of `auto` a loop.
[[nodiscard]] Placement placementOf(const PlanRequest& request, int stages);

/// `balancedSplits` with the speeds of the ranks that the stages are on.
[[nodiscard]] std::vector<NodeId> balancedFor(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, int stages,
                                              Balance by);

/// The memory limit of each of the `ranks` of a pipeline, in bytes: the smaller of the request's and its own on the profile's topology (of
/// all replicas the smallest; where they are cut differently of the slowest); 0: none.
[[nodiscard]] std::vector<Bytes> memoryLimits(const PlanRequest& request, const Profile& profile, std::size_t ranks);

/// Where stages begin, in words: the split point's name, else `node 12`. One name for each of `begins`.
[[nodiscard]] std::vector<std::string> splitNames(const std::vector<SplitPoint>& points, const std::vector<NodeId>& begins);

/// A partition with its recomputation and sharing decided, and its costs.
struct Priced {
  Partition partition;
  std::vector<SharingChoice> sharing;
  CostTable costs;                  ///< without optimizer state: a run adds its own
  std::optional<ReplicaCuts> cuts;  ///< of replicas that have splits of their own: the above are then those of the slowest

  bool operator==(const Priced&) const = default;
};

/// Cuts at `request.begins`, sets what is recomputed and shared, and folds the costs. `rows`: of `planRows`, for as many stages. Throws
/// UsageError where the model cannot be cut so. Cost: linear in nodes; with RecomputeAuto as `recomputeToFit`.
[[nodiscard]] Priced price(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, const Schedule& rows);
/// The same, with the caches of the graph and profile (`model`) and of the rows that are kept from one plan to the next.
[[nodiscard]] Priced price(const PlanRequest& request, ModelCosts& model, CompiledRows& rows);
/// Samples of a step, of all replicas.
[[nodiscard]] inline std::int64_t samplesOf(const PlanRequest& request) {
  return request.batch > 0 ? request.batch : request.microbatch * request.microbatches * request.replicas;
}
/// As above, of what a request asks for.
[[nodiscard]] inline int optimizerShards(const PlanRequest& request, const Placement& placement) {
  return optimizerShards(request.zero1, request.replicas, placement);
}

/// The plan of these parts: it can be saved and run.
[[nodiscard]] Plan planOf(const PlanRequest& request, const ModelGraph& graph, const Profile& profile, const Schedule& rows,
                          const Priced& priced, const std::vector<SplitPoint>& points);

}  // namespace pw
