#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/planning/inputs/measure.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/one_rank.h"
#include "simulator/plan/plan.h"
#include "simulator/search/search.h"

namespace pw {

struct Job;

/// What a search of plans covers: the options of `pipewright search`. 0 and empty: not given.
struct SearchOptions {
  std::vector<std::string> models;     ///< archives, several where each stage was exported on its own; or a layer table, job or trace
  std::shared_ptr<const Job> job;      ///< the job of that file or trace; nothing: it is read, where the file is one
  int ranks = 0;                       ///< of a pipeline; required
  int replicas = 1;                    ///< data-parallel copies of the pipeline
  std::vector<int> microbatches;       ///< counts to try
  std::int64_t batch = 0;              ///< samples per step over all replicas
  std::int64_t microbatch = 0;         ///< keep this size [samples] instead of the batch
  std::vector<int> rankOrder;          ///< the ranks along the pipeline; empty: searched where they differ
  std::string memoryLimit;             ///< of a rank: `24GiB`
  std::vector<std::string> schedules;  ///< names, also `auto`; empty: all that include backwards
  std::vector<int> chunks;             ///< stages per rank to try
  bool noRecompute = false;
  std::vector<std::string> profiles;    ///< files, of one or several microbatch sizes
  std::vector<Profile> profilesAtHand;  ///< besides those in files
  std::string cluster;                  ///< preset or file; with profiles, only its ranks and links; without both, costs are measured
  OptimizerSpec optimizer;              ///< its kind and momentum: whose state is counted
  bool zero1 = false;
  std::string loss;     ///< empty: the model's own, otherwise cross_entropy
  int threads = 0;      ///< 0: one for each core
  bool isPart = false;  ///< of several searches that are merged: may find nothing
  MeasureOptions how;
};

/// What a search of a model found.
struct SearchedModel {
  SearchOptions options;  ///< as given, with the defaults filled in
  ModelGraph graph;
  SearchSpace space;
  std::map<std::int64_t, SizedProfile> profiles;  ///< by microbatch size
  Found found;
  std::optional<OneRank> oneRank;  ///< the best candidate's microbatches on one rank, where the model fits it
};

/// Called before and after costs are measured in processes of their own.
using Measuring = std::function<void(bool begins)>;

/// Reads the model and searches. `progress`: as of `searchPlans`; `measuring` may be empty. `tell`: as of `measureWithRanks`. Throws
/// UsageError for unusable options, and where no plan is possible, the search was not cancelled and is not a part.
[[nodiscard]] SearchedModel searchModel(SearchOptions options, const SearchProgress& progress, const Tell& tell,
                                        const Measuring& measuring = {});

/// Throws what `mergeSearches` refuses of these options, before their parts are searched.
void requireSearchInParts(SearchOptions options);

/// The result of searches that each covered a part of these options' schedules, on this machine or others: ranked as one search does.
/// Its costs are not measured: the options have a cluster or profiles. Throws as `searchModel`.
[[nodiscard]] SearchedModel mergeSearches(SearchOptions options, std::vector<Found> parts);

/// The plan of a candidate that was found.
[[nodiscard]] Plan planOf(const SearchedModel& searched, const Candidate& candidate);

/// Places where the model can be split, at each microbatch size among the candidates.
[[nodiscard]] std::map<std::int64_t, std::vector<SplitPoint>> splitPointsOf(const SearchedModel& searched);

/// The best candidate of each combination, at most `most`, best first; and the Pareto front, fastest first.
[[nodiscard]] std::vector<const Candidate*> bestOf(const Found& found, int most);
[[nodiscard]] std::vector<const Candidate*> frontOf(const Found& found);

/// The document of `search --json` with at most so many of the best, without its version.
[[nodiscard]] std::string searchJson(const SearchedModel& searched, int most);

}  // namespace pw
