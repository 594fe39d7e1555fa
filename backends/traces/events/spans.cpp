#include "backends/traces/events/spans.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace pw {
namespace {

/// Times may be whole µs: what overlaps by no more was recorded as one after the other.
constexpr Ns kRounding(1'000);

bool before(const Span& a, const Span& b) {
  if (a.start != b.start) return a.start < b.start;
  return std::tie(a.rank, a.end, a.kind, a.stage, a.microbatch, a.peer, a.bytes) <
         std::tie(b.rank, b.end, b.kind, b.stage, b.microbatch, b.peer, b.bytes);
}

/// Whether it holds its rank: neither a message or reduction beside it, nor a wait.
bool holdsRank(const Span& span) {
  switch (span.kind) {
    case SpanKind::Forward:
    case SpanKind::Backward:
    case SpanKind::BackwardInput:
    case SpanKind::BackwardWeight:
    case SpanKind::Optimizer:
    case SpanKind::Load:
    case SpanKind::Store: return true;
    case SpanKind::ReduceGrad: return !isBeside(span);
    case SpanKind::SendForward:
    case SpanKind::SendBackward:
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return false;
  }
  return false;
}

constexpr int kMuchLess = 10;  ///< times

using Place = std::tuple<Rank, Stage, Microbatch>;
Place actionPlaceOf(const Span& span) { return {span.rank, span.stage, span.microbatch}; }

bool isOfPass(const Span& span) { return isCompute(span.kind) && span.microbatch.value >= 0; }

}  // namespace

void sortSpans(std::vector<Span>& spans) {
  // A file holds its spans in order, or those of one rank after another's: a few ascending runs, which merge faster than a sort from
  // scratch.
  constexpr std::size_t kMostRuns = 4096;
  std::vector<std::size_t> runs{0};
  for (std::size_t i = 1; i < spans.size() && runs.size() <= kMostRuns; ++i) {
    if (before(spans[i], spans[i - 1])) runs.push_back(i);
  }
  if (runs.size() > kMostRuns) return std::sort(spans.begin(), spans.end(), before);
  runs.push_back(spans.size());
  const auto at = [&](std::size_t run) { return spans.begin() + static_cast<std::ptrdiff_t>(runs[run]); };
  while (runs.size() > 2) {
    std::vector<std::size_t> merged{0};
    for (std::size_t r = 0; r + 1 < runs.size(); r += 2) {
      const std::size_t last = std::min(r + 2, runs.size() - 1);
      std::inplace_merge(at(r), at(r + 1), at(last), before);
      merged.push_back(runs[last]);
    }
    runs = std::move(merged);
  }
}

std::size_t cutOverlaps(std::vector<Span>& spans, int ranks) {
  std::vector<Ns> busyUntil(static_cast<std::size_t>(ranks), std::numeric_limits<Ns>::min());
  std::size_t changed = 0;
  bool moved = false;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < spans.size(); ++i) {
    Span span = spans[i];
    if (holdsRank(span)) {
      Ns& until = busyUntil[span.rank.index()];
      const bool slot = kept > 0 && isSlot(spans[kept - 1], span);
      if (span.start < until && !slot) {
        const bool isInside = span.end <= until;
        if (isInside || until - span.start > kRounding) ++changed;
        if (isInside) continue;
        span.start = until;
        moved = true;
      }
      until = std::max(until, span.end);
    }
    spans[kept++] = span;
  }
  spans.resize(kept);
  if (moved) sortSpans(spans);
  return changed;
}

bool inSlot(const std::vector<Span>& spans, std::size_t i) {
  const auto same = [&](const Span& a, const Span& b) { return a.rank == b.rank && a.start == b.start && a.end == b.end; };
  return (i > 0 && same(spans[i - 1], spans[i])) || (i + 1 < spans.size() && same(spans[i], spans[i + 1]));
}

std::string countedEvents(std::uint64_t number, const std::string& noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

void dropEmptyBackwards(std::vector<Span>& spans) {
  std::map<Place, std::vector<Ns>> backwards;              // of a microbatch, by its forward
  std::map<std::pair<Rank, Stage>, Ns> shortest, longest;  // forward and backwards of a stage
  for (const Span& span : spans) {
    if (!isOfPass(span)) continue;
    std::vector<Ns>& own = backwards[actionPlaceOf(span)];
    const Ns time = span.end - span.start;
    if (span.kind == SpanKind::Forward) {
      own.push_back(0);
      Ns& least = shortest.try_emplace({span.rank, span.stage}, time).first->second;
      least = std::min(least, time);
    } else if (!own.empty()) {
      own.back() += time;
      Ns& most = longest[{span.rank, span.stage}];
      most = std::max(most, own.back());
    }
  }
  const auto isMuchLess = [](Ns a, Ns b) { return a < b / kMuchLess; };
  const bool anyTrains = std::ranges::any_of(longest, [&](const auto& of) { return !isMuchLess(of.second, shortest.at(of.first)); });
  std::map<Place, std::size_t> forwards;  // so far
  std::erase_if(spans, [&](const Span& span) {
    if (!isOfPass(span)) return false;
    std::size_t& count = forwards[actionPlaceOf(span)];
    if (span.kind == SpanKind::Forward) return ++count, false;
    if (count == 0) return false;
    const std::pair stage(span.rank, span.stage);
    const Ns time = backwards.at(actionPlaceOf(span))[count - 1];
    return isMuchLess(time, shortest.at(stage)) && (!anyTrains || isMuchLess(time, longest.at(stage)));
  });
}

}  // namespace pw
