#include "backends/traces/recovery/interleaving.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <tuple>

#include "schedules/generate.h"
#include "simulator/layout/rules.h"

namespace pw {
namespace {

constexpr std::int64_t kLargestSchedule = 16'000'000;  ///< actions of all schedules that are made to number them
constexpr std::size_t kMostPairs = 16;

/// V and G.
using Pair = std::pair<std::int64_t, std::int64_t>;

/// Those that agree with what the first rank did.
std::vector<Pair> pairsOf(std::int64_t ranks, std::int64_t warmup, std::int64_t forwards) {
  std::vector<Pair> pairs;
  const auto add = [&](std::int64_t chunks, std::int64_t group) {
    if (chunks < 2 || forwards % chunks != 0 || ranks * chunks > kMaxStages || pairs.size() == kMostPairs) return;
    const std::int64_t microbatches = forwards / chunks;
    const auto as = [](std::int64_t number) { return static_cast<int>(number); };
    const bool isWhole = microbatches < ranks ? group == ranks : !refusalOfMicrobatches(as(ranks), as(chunks), as(microbatches), as(group));
    if (isWhole && std::ranges::find(pairs, Pair(chunks, group)) == pairs.end()) pairs.emplace_back(chunks, group);
  };
  const std::int64_t beyond = warmup - 1 - 2 * (ranks - 1);
  if (beyond >= ranks && beyond % ranks == 0) add(beyond / ranks + 1, ranks);
  for (std::int64_t chunks = 2; warmup == forwards && chunks * ranks <= forwards; ++chunks) {  // the formula may say more than there are
    const std::int64_t least = (forwards - 1 - 2 * (ranks - 1) + chunks - 2) / (chunks - 1);
    for (std::int64_t group = std::max(ranks, least); group <= forwards / chunks; ++group) add(chunks, group);
    if (forwards == chunks * ranks) add(chunks, ranks);
  }
  for (std::int64_t group = ranks + 1; group <= std::min(beyond, forwards / 2); ++group) {
    if (beyond % group == 0) add(beyond / group + 1, group);
  }
  return pairs;
}

/// Distances from the median, summed; reorders.
double spreadOf(std::vector<double>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  double sum = 0;
  for (const double value : values) sum += std::abs(value - *middle);
  return sum;
}

/// How far in all the starts of actions are from those of a replay in that order, where each starts when its input is there and its rank is
/// free, and lasts as long as it did; of each rank but for a shift of its clock. And how far durations are from the usual one of their
/// stage. In doubles: files may hold times whose sums exceed 64 bits.
double misfit(const UnnamedStep& step, const Schedule& schedule) {
  const std::size_t ranks = schedule.rows.size();
  const auto last = static_cast<std::int32_t>(schedule.placement.stages()) - 1;
  std::map<std::tuple<bool, Stage, Microbatch>, double> ends;
  std::vector<std::size_t> next(ranks, 0), forwards(ranks, 0), backwards(ranks, 0);
  std::vector<double> free(ranks, 0);
  std::vector<std::vector<double>> late(ranks);
  std::map<std::pair<bool, Stage>, std::vector<double>> durations;
  // One action of a rank: false where its row ends, or its input does not exist yet.
  const auto perform = [&](std::size_t r) {
    const auto& row = schedule.rows[r];
    while (next[r] < row.size() && !isCompute(row[next[r]].kind)) ++next[r];  // a pause
    if (next[r] == row.size()) return false;
    const Action& action = row[next[r]];
    const bool isForward = action.kind == ActionKind::Forward, isSource = action.stage.value == (isForward ? 0 : last);
    const auto input = ends.find({isForward, Stage(action.stage.value + (isForward ? -1 : 1)), action.microbatch});
    if (!isSource && input == ends.end()) return false;
    ++next[r];
    const auto& measured = isForward ? step.forwards[r] : step.backwards[r];
    const std::size_t at = isForward ? forwards[r]++ : backwards[r]++;
    const double start = isSource ? free[r] : std::max(free[r], input->second);
    free[r] = start;
    if (at < measured.size()) {
      late[r].push_back(static_cast<double>(measured[at].first) - start);
      const double duration = static_cast<double>(measured[at].second) - static_cast<double>(measured[at].first);
      durations[{isForward, action.stage}].push_back(duration);
      free[r] += duration;
    }
    ends[{isForward, action.stage, action.microbatch}] = free[r];
    return true;
  };
  for (bool any = true; any;) {
    any = false;
    for (std::size_t r = 0; r < ranks; ++r) {
      while (perform(r)) any = true;
    }
  }
  double sum = 0;
  for (std::vector<double>& of : late) sum += spreadOf(of);
  for (auto& [stage, of] : durations) sum += spreadOf(of);
  return sum;
}

}  // namespace

std::optional<Interleaving> interleavingOf(const UnnamedStep& step, std::optional<int> known) {
  const auto ranks = static_cast<std::int64_t>(step.forwards.size());
  if (ranks == 0 || step.backwards.front().empty()) return std::nullopt;
  const auto& first = step.forwards.front();
  const Ns begin = step.backwards.front().front().first;
  const auto forwards = static_cast<std::int64_t>(first.size());
  const auto warmup = std::ranges::count_if(first, [&](const auto& forward) { return forward.first < begin; });
  if (forwards > kMaxMicrobatches || 2 * ranks * forwards > kLargestSchedule) return std::nullopt;
  std::vector<Pair> pairs = pairsOf(ranks, warmup, forwards);
  std::erase_if(pairs, [&](const Pair& pair) { return known && pair.first != *known; });
  const std::int64_t most = kLargestSchedule / std::max<std::int64_t>(1, 2 * ranks * forwards);
  pairs.resize(std::min(pairs.size(), static_cast<std::size_t>(most)));
  std::optional<Interleaving> best;
  double least = 0;
  for (const auto& [chunks, group] : pairs) {
    const auto microbatches = static_cast<int>(forwards / chunks);
    const Shape shape{static_cast<int>(ranks), static_cast<int>(ranks * chunks), microbatches};
    const int each = std::min(static_cast<int>(group), microbatches);
    Interleaving tried{static_cast<int>(chunks), microbatches, each, interleavedWithGroups(shape, each)};
    const double wrong = pairs.size() > 1 ? misfit(step, tried.schedule) : 0;
    if (best && wrong >= least) continue;
    least = wrong;
    best = std::move(tried);
  }
  return best;
}

}  // namespace pw
