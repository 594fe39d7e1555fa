#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simulator/plan/partition.h"
#include "simulator/plan/planner.h"
#include "simulator/plan/search_profiles.h"
#include "simulator/plan/split.h"

namespace pw {

/// Where a search looks. Of `base` it takes ranks, replicas, batch, loss, sharing, optimizer and memory limit (and the microbatch where
/// that is fixed).
struct SearchSpace {
  /// `base.batch` [samples per step]: all candidates have it, and a microbatch the size that follows, so that their steps are comparable.
  /// 0: the batch at export in each of the most microbatches. A model exported with a fixed batch has microbatches of that size always;
  /// then without a batch, steps differ in samples, and samples per second compare.
  PlanRequest base;
  bool fixedMicrobatch = false;        ///< microbatches of `base.microbatch` samples always, as of a model exported with a fixed batch
  std::vector<int> microbatches;       ///< counts; empty: `usualCounts`
  std::vector<std::string> schedules;  ///< empty: all that train
  std::vector<int> chunks;             ///< stages per rank; empty: each family's own, and twice that where it takes any number
  std::vector<Balance> balances{Balance::Time, Balance::Memory, Balance::Parameters, Balance::Layers};
  bool recompute = true;  ///< also with all recomputed, and with as little as the memory limit demands
  int improve = 12;       ///< of how many of the best the splits are moved afterwards
  int threads = 0;        ///< 0: one for each core
};

/// Counts of microbatches worth trying, ascending: all that cut the batch (0: not known) into equal parts for all replicas, down to single
/// samples; and R, 2R, 4R and 8R as far as the batch has that many samples. At least one count.
[[nodiscard]] std::vector<int> usualCounts(int ranks, int replicas, std::int64_t batch);

/// A plan that was tried, and what is predicted of it.
struct Candidate {
  PlanRequest request;  ///< `price` and `planOf` make the plan of it
  int stages = 0;
  std::string split;  ///< what its splits balance: time, memory, parameters, layers; `marks`: as marked in the model
  int moves = 0;      ///< splits moved from there, since that made the step shorter
  Ns step = 0, makespan = 0;
  double bubbleFraction = 0;
  Bytes peak = 0;            ///< of the rank that needs most
  bool fits = true;          ///< within the memory limit
  std::int64_t samples = 0;  ///< per step
  double samplesPerSecond = 0;
  bool scaled = false;   ///< from costs of another microbatch size
  bool leads = false;    ///< the first, in the order of Found, of its schedule, chunks, microbatches and recomputation
  bool onFront = false;  ///< no other is faster with no more memory, or needs less and is as fast

  bool operator==(const Candidate&) const = default;
};

/// What a search found: first those that fit, most samples per second first (ties: less memory, fewer stages, then by name, microbatches,
/// recompute, splits), then the others, least memory first.
struct Found {
  std::vector<Candidate> candidates;
  std::vector<std::string> skipped;  ///< `zb-h2, 4 microbatches: …`: shapes that were refused, and why
  int shapes = 0;                    ///< schedules × chunks × microbatches that were tried
  bool cancelled = false;            ///< not all was tried
};

/// Called with every candidate as it is found (null: only progress), never by two threads at once; returns whether to go on. `done` of
/// `all`: parts of the work as far as it can be foreseen.
using SearchProgress = std::function<bool(int done, int all, const Candidate* candidate)>;

/// Tries all schedules, microbatch counts, balances and ways to recompute; then moves the splits of the best to neighbouring split points
/// as long as the simulated step falls, since a balance knows nothing of the schedule. The same input gives the same result, whatever the
/// threads, unless cancelled. Throws UsageError for names nobody knows, a batch that no count divides up, and a space without any shape.
/// Cost: for each candidate the folding of its costs (linear in nodes) and a pass over its schedule.
[[nodiscard]] Found searchPlans(const ModelGraph& graph, const ProfileSource& profiles, const SearchSpace& space,
                                const SearchProgress& progress = {});

/// Marks what leads, by the order of Found.
void markLeads(std::vector<Candidate>& candidates);

/// Marks the Pareto front of samples per second and peak memory; of equal ones the first.
void markFront(std::vector<Candidate>& candidates);

/// `time`, `memory`, `parameters`, `layers`, and back. Throws UsageError for another name.
[[nodiscard]] std::string_view name(Balance balance);
[[nodiscard]] Balance parseBalance(std::string_view name);

}  // namespace pw
