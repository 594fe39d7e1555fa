#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "simulator/plan/planner.h"
#include "simulator/report/certificate.h"
#include "simulator/search/profiles.h"

namespace pw {

/// What a search covers. From `base` it takes ranks and their order (empty: searched), replicas, batch, loss, sharing, optimizer and memory
/// limit (and the microbatch where that is fixed).
struct SearchSpace {
  /// `base.batch` [samples per step]: all candidates have it, and a microbatch the size that follows, so that their steps are comparable.
  /// 0: the batch at export in each of the most microbatches. A model exported with a fixed batch has microbatches of that size always;
  /// then without a batch, steps differ in samples, and samples per second compare.
  PlanRequest base;
  bool fixedMicrobatch = false;        ///< always microbatches of `base.microbatch` samples, as for a model exported with a fixed batch
  std::vector<int> microbatches;       ///< counts; empty: `usualCounts`
  std::vector<std::string> schedules;  ///< empty: all that include backwards, and `auto`; only `auto`: it takes the splits of the others
  std::vector<int> chunks;             ///< stages per rank; empty: each family's own, and twice that where it takes any number
  std::vector<Balance> balances{Balance::Time, Balance::Memory, Balance::Parameters, Balance::Layers};
  bool recompute = true;  ///< also with everything recomputed, and where splits do not fit without, with as little as the memory limit
                          ///< allows; a layer table only where it says what is kept then
  int improve = 12;       ///< how many of the best candidates have their splits moved afterwards
  int orders = 12;        ///< and for how many of the best partitions the schedule `auto` is made, if it is among the schedules
  int threads = 0;        ///< 0: one for each core
};

/// Counts of microbatches worth trying, ascending: all that cut the batch (0: not known) into equal parts for all replicas, down to single
/// samples; and R, 2R, 4R and 8R as far as the batch has that many samples. At least one count.
[[nodiscard]] std::vector<int> usualCounts(int ranks, int replicas, std::int64_t batch);

/// Where the splits of a candidate come from: what they balance over the stages, or
enum class SplitSource : std::uint8_t {
  Time,
  Memory,
  Parameters,
  Layers,
  Fit,    ///< the time, within the memory limits
  Marks,  ///< the model's own split markers
};
constexpr std::string_view nameOf(SplitSource source) {
  switch (source) {
    case SplitSource::Time: return nameOf(Balance::Time);
    case SplitSource::Memory: return nameOf(Balance::Memory);
    case SplitSource::Parameters: return nameOf(Balance::Parameters);
    case SplitSource::Layers: return nameOf(Balance::Layers);
    case SplitSource::Fit: return "fit";
    case SplitSource::Marks: return "marks";
  }
  return {};
}
[[nodiscard]] constexpr SplitSource splitSource(Balance balance) {
  switch (balance) {
    case Balance::Time: return SplitSource::Time;
    case Balance::Memory: return SplitSource::Memory;
    case Balance::Parameters: return SplitSource::Parameters;
    case Balance::Layers: return SplitSource::Layers;
  }
  return SplitSource::Time;
}

/// A plan that was tried, and what is predicted of it.
struct Candidate {
  PlanRequest request;  ///< `price` and `planOf` turn it into a plan
  int stages = 0;
  SplitSource split = SplitSource::Time;
  int moves = 0;  ///< of splits from there, because they made the step shorter
  Ns step = 0, makespan = 0;
  double bubbleFraction = 0;
  Bytes peak = 0;            ///< of the rank that needs the most
  Bytes excess = 0;          ///< of the rank that is furthest above its memory limit; 0: it fits
  std::int64_t samples = 0;  ///< per step
  double samplesPerSecond = 0;
  std::optional<Certificate> certificate = {};  ///< where the schedule was made for these costs, and the plan fits
  bool scaled = false;                          ///< from costs of another microbatch size
  bool leads = false;    ///< the best, in the order of Found, with its schedule, chunks, microbatches and recomputation
  bool onFront = false;  ///< no other is faster with no more memory, or needs less and is as fast

  [[nodiscard]] bool fits() const { return excess == 0; }
  bool operator==(const Candidate&) const = default;
};

/// What a search found: first those that fit, most samples per second first (ties: less memory, fewer stages, then by name, microbatches,
/// recompute, splits, order of ranks), then the others, nearest to fitting first.
struct Found {
  std::vector<Candidate> candidates;
  std::vector<std::string> skipped;  ///< `zb-h2, 4 microbatches: …`: combinations that are impossible, and why
  int shapes = 0;                    ///< schedules × chunks × microbatches that were tried
  bool cancelled = false;            ///< not everything was tried
};

/// Called with every candidate as it is found (null: only progress), never by two threads at once; returns whether to continue. `done` of
/// `all`: units of work, as far as they can be estimated.
using SearchProgress = std::function<bool(int done, int all, const Candidate* candidate)>;

/// Tries all schedules, microbatch counts, balances and ways to recompute; then looks for better splits of the best candidates,
/// because balancing ignores the schedule: all that are possible where these are few (`Evaluator::improve`), else neighbouring ones, and
/// before that, where ranks differ, for a better order of the ranks (`withRankOrders`); then makes orders for the best partitions and
/// for others near them (`withOrder`), which are never slower there than a schedule of the same placement (`makeOrder`). The same input
/// gives the same result for any number of threads, unless cancelled. Throws UsageError for unknown names, a batch that no count divides,
/// and a space without any possible combination. Cost: for each candidate the folding of its costs (linear in nodes) and a pass over its
/// schedule.
[[nodiscard]] Found searchPlans(const ModelGraph& graph, const ProfileSource& profiles, const SearchSpace& space,
                                const SearchProgress& progress = {});

}  // namespace pw
