#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/inputs/measure.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/one_rank.h"
#include "simulator/plan/plan.h"
#include "simulator/plan/planner.h"
#include "simulator/report/prediction_report.h"
#include "simulator/trace/trace.h"

namespace pw {

/// How a model is cut and scheduled: the options of `pipewright plan`. 0 and empty: not given.
struct PlanOptions {
  std::vector<std::string> models;                     ///< archives, several where each stage was exported on its own; or a layer table
  std::string schedule = "1f1b";                       ///< a name, also `auto`, or a CSV file
  std::optional<double> seconds;                       ///< how long the order of `auto` is searched; nothing: 2
  std::function<bool(double share)> shouldContinue{};  ///< then: as of `OrderEffort`
  int ranks = 0;                ///< 0: split points + 1, else those of a job, else one per GPU where there are several, else one per core
  int chunks = 0;               ///< stages per rank; 0: as the schedule usually has
  int microbatches = 0;         ///< per step of each replica; 0: those of a job, else 4 per rank, or fewer where the batch is smaller
  std::int64_t microbatch = 0;  ///< samples in a full microbatch; 0: as exported
  std::int64_t batch = 0;       ///< samples per step over all replicas; 0: all microbatches are full
  int replicas = 1;             ///< data-parallel copies of the pipeline
  bool sameSplits = false;      ///< for all replicas, also where they would be faster with their own
  std::vector<std::string> splits;       ///< where stages begin: `blocks.2`, `blocks.1:end`, `@node`
  std::optional<Balance> balance;        ///< what is balanced without `splits`; nothing: time, where the model has no marks
  std::string profile;                   ///< file
  std::optional<Profile> profileAtHand;  ///< instead of a file
  std::string cluster;                   ///< preset or file; with a profile, only its ranks and links; without both, costs are measured
  std::vector<int> rankOrder;            ///< the ranks along the pipeline (`PlanRequest::rankOrder`); empty: as numbered
  std::string memoryLimit;               ///< of a rank: `24GiB`
  Recompute recompute = RecomputeNone();
  std::optional<Sharing> share;  ///< nothing: the faster one
  OptimizerSpec optimizer;       ///< its kind and momentum: whose state is counted
  bool zero1 = false;
  std::string loss;  ///< empty: the model's own, otherwise cross_entropy
  MeasureOptions how;
};

/// A plan and what is predicted of it.
struct PlannedModel {
  PlanOptions options;  ///< as given, with the defaults filled in
  bool microbatchesByDefault = false;
  ModelGraph graph;
  PlanRequest request;
  Profile profile;
  Plan plan;
  std::vector<SharingChoice> sharing;
  CostTable costs;  ///< of the plan, and the state of its optimizer, which a run adds itself
  Trace trace;
  PredictionReport prediction;           ///< `fits`: within the memory limit
  std::vector<Bytes> limits;             ///< of each rank; 0: none
  std::optional<Ns> stepWithSameSplits;  ///< where each replica has its own
  bool movedToFit = false;               ///< whether the splits are other than balanced, for the limits: all fit, or `auto` ends earlier
  std::optional<Rank> tooLarge;          ///< the rank that is furthest above its limit
  std::optional<OneRank> oneRank;        ///< of several stages: what one rank would take, if the model fits it
  std::vector<std::string> notes;        ///< of the job that is planned anew: what its traces lack
};

/// Where stages begin: the options' splits by name, else the marks in the model unless a balance is given, else balanced (`planModel` moves
/// those that do not fit). Throws UsageError for unknown names. `placement`: of the stages, whose ranks may differ in speed.
[[nodiscard]] std::vector<NodeId> chooseSplits(const PlanOptions& options, const ModelGraph& graph, const Profile& profile,
                                               const Placement& placement);

/// The sentence about the rank that is too large; there must be one.
[[nodiscard]] std::string tooLargeSentence(const PlannedModel& planned);

/// Reads the model, settles the defaults, measures or estimates or reads its costs, cuts, schedules and simulates. Throws UsageError for
/// what cannot be planned, before anything is measured where that can be known. Cost: as `price` and `simulate`, and measuring: seconds to
/// minutes. `tell`: as of `measureWithRanks`.
[[nodiscard]] PlannedModel planModel(PlanOptions options, const Tell& tell);

}  // namespace pw
