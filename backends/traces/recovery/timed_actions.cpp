#include "backends/traces/recovery/timed_actions.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "backends/traces/events/spans.h"

namespace pw {
namespace {

constexpr Ns kNever = std::numeric_limits<Ns>::max();
constexpr std::size_t kMostActions = 10'000;  ///< of a clock that are looked at

/// Counts steps by their first forward, where occurrences do not tell them apart.
void countSteps(TimedActions& timed) {
  std::map<std::size_t, std::map<ActionKey, int>> counts;  // by rank
  for (const auto& [key, times] : timed.actions) {
    ActionKey action = key;
    action.occurrence = 0;
    ++counts[times.rank][action];
  }
  const auto isUneven = [](const auto& rank) {
    return std::ranges::any_of(rank.second, [&](const auto& count) { return count.second != rank.second.begin()->second; });
  };
  if (std::ranges::none_of(counts, isUneven)) return;
  std::map<std::size_t, std::vector<std::pair<TimedAction, ActionKey>>> rows;  // by rank, by start
  for (const auto& [key, times] : timed.actions) rows[times.rank].emplace_back(times, key);
  timed.actions.clear();
  for (auto& [rank, row] : rows) {
    std::ranges::sort(row, {}, [](const auto& action) { return action.first.start; });
    const auto order = [](const auto& action) {
      const ActionKey& key = action.second;
      return std::tuple(!key.forward, key.microbatch, key.stage, key.pipeline);
    };
    const auto first = order(*std::ranges::min_element(row, {}, order));
    const bool isPartial = order(row.front()) != first;
    if (isPartial) timed.partial[row.front().first.clock] = 1;
    std::int32_t step = isPartial ? 0 : -1;
    for (auto& [times, key] : row) {
      if (order(std::pair(times, key)) == first) ++step;
      key.occurrence = step;
      timed.actions[key] = times;
    }
  }
}

}  // namespace

TimedActions timedActions(const std::vector<Span>& spans, const RankClocks& clocks, const RankPlaces& places, const RankMarks& marks) {
  const std::size_t n = clocks.sources.size();
  TimedActions timed;
  timed.extents.resize(n);
  timed.partial.resize(n);
  timed.steps.resize(n);
  std::map<ActionKey, std::int32_t> counts;
  std::vector<std::size_t> taken(n);
  std::vector<std::int32_t> optimizers(places.pipeline.size());  // by rank
  std::vector<std::pair<Ns, Ns>> extent(n, {kNever, -kNever});
  for (std::size_t i = 0; i < spans.size(); ++i) {
    const Span& span = spans[i];
    const bool backward = span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput;
    const std::size_t r = span.rank.index();
    if (span.kind == SpanKind::Optimizer) ++optimizers[r];
    if ((span.kind != SpanKind::Forward && !backward) || span.microbatch.value < 0) continue;
    const std::size_t clock = static_cast<std::size_t>(clocks.ofRank[r]);
    if (++taken[clock] > kMostActions) continue;
    ActionKey key{!backward, places.pipeline[r], span.stage.value, span.microbatch.value, 0};
    const auto next = std::ranges::upper_bound(marks[r], span.start, {}, &std::pair<Ns, std::int32_t>::first);
    key.occurrence = marks[r].empty() ? counts[key]++ : next == marks[r].begin() ? -1 : std::prev(next)->second;
    // Of several passes in a marked step the first: of the last, a recording may have the beginning alone.
    timed.actions.try_emplace(key, TimedAction{clock, r, span.start, span.end, inSlot(spans, i)});
    const auto [at, isNew] = timed.shortest.try_emplace({clock, !backward}, span.end - span.start);
    at->second = std::min(at->second, span.end - span.start);
    extent[clock] = {std::min(extent[clock].first, span.start), std::max(extent[clock].second, span.end)};
  }
  for (std::size_t c = 0; c < extent.size(); ++c) timed.extents[c] = taken[c] == 0 ? 0 : extent[c].second - extent[c].first;
  if (std::ranges::all_of(marks, [](const auto& ofRank) { return ofRank.empty(); })) {
    countSteps(timed);
    for (const auto& [key, times] : timed.actions) {
      timed.steps[times.clock] = std::max(timed.steps[times.clock], key.occurrence + 1);
      const std::int32_t ends = optimizers[times.rank];
      timed.accumulates = timed.accumulates || (!key.forward && ends > 0 && key.occurrence > ends);  // the last may not be recorded
    }
  }
  return timed;
}

Ns latestStart(const TimedActions& timed, const RankClocks& clocks, const ActionKey& key, const TimedAction& times) {
  return clocks.exactStarts[times.clock] != 0 ? times.start : times.end - timed.shortest.at({times.clock, key.forward});
}

bool mayCountOtherSteps(const TimedActions& timed, std::size_t a, std::size_t b) {
  return timed.partial[a] != 0 || timed.partial[b] != 0 || timed.steps[a] != timed.steps[b];
}

}  // namespace pw
