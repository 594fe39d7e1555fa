#include "simulator/layout/best.h"

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "schedules/error.h"
#include "simulator/plan/excess.h"

namespace pw {
namespace {

constexpr double kMostLayouts = 200'000;           // that are all looked at; a bound takes about a microsecond
constexpr std::int64_t kMostActions = 30'000'000;  // actions counted in a search, by looking at all or by moves: a second or two

constexpr std::int64_t kPosted = 8;  // what a simulation with messages as they are posted counts beside one without

using Begins = std::vector<std::size_t>;

/// Of all ranks together, so that a layout that exceeds the limit of one by less is nearer.
Bytes excessOver(const std::vector<Bytes>& peaks, const std::vector<Bytes>& limits) {
  Bytes excess = 0;
  for (std::size_t r = 0; r < limits.size(); ++r) excess += excessOf(peaks[r], limits[r]);
  return excess;
}

/// What is best so far, and what is tried.
class Search {
 public:
  /// `actions`: that it counts before it is tired.
  Search(TimedLayouts& layouts, const LayoutShape& shape, const std::vector<Bytes>& limits, std::int64_t actions)
      : layouts_(layouts), shape_(shape), limits_(limits), actions_(actions) {}

  /// Whether it is better than the best so far, which it then is.
  bool attempt(const Begins& begins) {
    if (!layouts_.allows(begins)) return false;
    if (!best_.begins.empty() && excess_ == 0 && layouts_.bound(begins) > best_.times.step) return false;
    const std::int64_t actions = std::int64_t{2} * shape_.stages() * shape_.microbatches;
    work_ += actions;
    const bool mustFit = found_ && excess_ == 0;
    std::optional<TimedLayouts::Times> within = layouts_.timesWithin(begins, mustFit ? best_.times.step : std::numeric_limits<Ns>::max());
    if (!within) return false;
    work_ += kPosted * actions;
    TimedLayouts::Times times = *std::move(within);
    const Bytes excess = excessOver(times.peaks, limits_);
    const auto key = [](Bytes over, const TimedLayouts::Times& t) { return std::tuple(over, t.step, std::ranges::max(t.peaks)); };
    if (found_ && key(excess, times) >= key(excess_, best_.times)) return false;
    found_ = true;
    excess_ = excess;
    best_.begins = begins;
    best_.times = std::move(times);
    return true;
  }

  [[nodiscard]] bool found() const { return found_; }
  [[nodiscard]] bool tired() const { return work_ > actions_; }
  [[nodiscard]] BestLayout& best() { return best_; }

 private:
  TimedLayouts& layouts_;
  const LayoutShape& shape_;
  const std::vector<Bytes>& limits_;
  BestLayout best_;
  Bytes excess_ = 0;
  bool found_ = false;
  std::int64_t actions_, work_ = 0;
};

double choicesOf(std::size_t places, std::size_t begins) {  // with repetition
  double ways = 1;
  for (std::size_t i = 0; i < begins; ++i) ways = ways * static_cast<double>(places + i) / static_cast<double>(i + 1);
  return ways;
}

/// False where bounds excluded too few of them to look at all in some seconds.
bool tryAll(Search& search, const std::vector<std::size_t>& places, std::size_t count) {
  std::vector<std::size_t> at(count, 0);
  Begins begins(count);
  while (true) {
    for (std::size_t i = 0; i < count; ++i) begins[i] = places[at[i]];
    search.attempt(begins);
    if (search.tired()) return false;
    std::size_t i = count;
    while (i > 0 && at[i - 1] + 1 == places.size()) --i;
    if (i == 0) return true;
    const std::size_t next = at[i - 1] + 1;
    for (std::size_t k = i - 1; k < count; ++k) at[k] = next;
  }
}

/// Stages move before the MTP layers until these are in the last stage of a rank.
Begins allowed(const TimedLayouts& layouts, Begins begins) {
  const auto mtp =
      static_cast<std::size_t>(std::ranges::find(layouts.blocks(), LayoutLayer::Mtp, &LayoutBlock::letter) - layouts.blocks().begin());
  for (std::size_t& begin : begins) {
    if (layouts.allows(begins)) break;
    begin = std::min(begin, mtp);
  }
  return begins;
}

/// Begins where the work before them is nearest to an even share.
Begins evenCut(const TimedLayouts& layouts, std::size_t stages) {
  const std::vector<Ns>& work = layouts.workBefore();
  Begins begins;
  for (std::size_t s = 1; s < stages; ++s) {
    const double share = static_cast<double>(work.back()) * static_cast<double>(s) / static_cast<double>(stages);
    begins.push_back(*std::ranges::min_element(layouts.places(), {}, [&](std::size_t place) {
      const double off = static_cast<double>(work[place]) - share;
      return off < 0 ? -off : off;
    }));
  }
  return allowed(layouts, std::move(begins));
}

/// As many layers in each stage, whatever they take, as Megatron cuts without a layout.
Begins evenCount(const TimedLayouts& layouts, std::size_t stages) {
  const std::vector<std::size_t>& places = layouts.places();
  Begins begins;
  for (std::size_t s = 1; s < stages; ++s) begins.push_back(places[(places.size() - 1) * s / stages]);
  return allowed(layouts, std::move(begins));
}

void improve(Search& search, const std::vector<std::size_t>& places) {
  const auto shifted = [&](const Begins& from, std::size_t first, std::size_t last, int by) -> std::optional<Begins> {
    Begins begins = from;
    for (std::size_t i = first; i <= last; ++i) {
      const auto to = (std::ranges::lower_bound(places, begins[i]) - places.begin()) + by;
      if (to < 0 || to >= std::ssize(places)) return std::nullopt;
      begins[i] = places[static_cast<std::size_t>(to)];
    }
    if (!std::ranges::is_sorted(begins)) return std::nullopt;
    return begins;
  };
  constexpr std::array<int, 6> kSteps{-1, 1, -2, 2, -4, 4};
  bool better = true;
  while (better && !search.tired()) {
    better = false;
    const std::size_t count = search.best().begins.size();
    for (std::size_t length = 1; length <= count && !search.tired(); ++length) {
      for (std::size_t first = 0; first + length <= count && !search.tired(); ++first) {
        for (const int by : kSteps) {
          const auto begins = shifted(search.best().begins, first, first + length - 1, by);
          better = (begins && search.attempt(*begins)) || better;
        }
      }
    }
  }
}

}  // namespace

BestLayout bestLayout(TimedLayouts& layouts, const LayoutShape& shape, const std::vector<Bytes>& limits,
                      const std::optional<Begins>& start) {
  Search search(layouts, shape, limits, kMostActions);
  const auto count = static_cast<std::size_t>(shape.stages()) - 1;
  const std::vector<std::size_t>& places = layouts.places();
  search.best().layouts = choicesOf(places.size(), count);
  search.best().all = search.best().layouts <= kMostLayouts;
  std::vector<Begins> starts;
  if (start) starts.push_back(*start);
  starts.push_back(evenCut(layouts, count + 1));
  starts.push_back(evenCount(layouts, count + 1));
  for (const Begins& begins : starts) search.attempt(begins);
  if (search.best().all) search.best().all = tryAll(search, places, count);
  if (!search.best().all) {
    for (const Begins& begins : starts) {
      Search from(layouts, shape, limits, kMostActions / std::ssize(starts));
      if (!from.attempt(begins)) continue;
      improve(from, places);
      search.attempt(from.best().begins);
    }
  }
  if (!search.found())
    throw UsageError("no layout of this shape has all MTP layers in the last stage of a rank; give fewer stages on a rank");
  return search.best();
}

}  // namespace pw
