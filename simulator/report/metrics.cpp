#include "simulator/report/metrics.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <vector>

namespace pw {
namespace {

struct Window {
  Ns first = std::numeric_limits<Ns>::max();
  Ns last = std::numeric_limits<Ns>::min();

  void cover(const Span& span) {
    first = std::min(first, span.start);
    last = std::max(last, span.end);
  }
  [[nodiscard]] Ns length() const { return first > last ? 0 : last - first; }
};

struct SpanEdge {
  Rank rank;
  Ns time = 0;
  int compute = 0;  ///< +1 where a compute span begins, −1 where it ends
  int message = 0;  ///< the same of messages to this rank
};

/// Busy time and exposed communication of every rank, by sweeping the edges of its compute spans and of messages to it.
void sweep(const Trace& trace, const Window& whole, std::vector<RankMetrics>& ranks) {
  std::vector<SpanEdge> edges;
  edges.reserve(2 * trace.spans.size());
  const auto add = [&](Rank rank, Ns start, Ns end, int compute, int message) {
    if (start >= end || rank.value < 0 || rank.index() >= ranks.size()) return;
    edges.push_back({rank, start, compute, message});
    edges.push_back({rank, end, -compute, -message});
  };
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) {
      add(span.rank, span.start, span.end, 1, 0);
    } else if (isMessage(span.kind)) {
      add(span.peer, std::max(span.start, whole.first), std::min(span.end, whole.last), 0, 1);
    }
  }
  std::sort(edges.begin(), edges.end(),
            [](const SpanEdge& a, const SpanEdge& b) { return std::tie(a.rank, a.time) < std::tie(b.rank, b.time); });
  int computing = 0;
  int receiving = 0;
  for (std::size_t i = 0; i < edges.size(); ++i) {
    computing += edges[i].compute;
    receiving += edges[i].message;
    if (i + 1 == edges.size() || edges[i + 1].rank != edges[i].rank) continue;  // every edge of the rank is closed here
    const Ns length = edges[i + 1].time - edges[i].time;
    RankMetrics& rank = ranks[edges[i].rank.index()];
    if (computing > 0) rank.busy += length;
    if (computing == 0 && receiving > 0) rank.exposedComm += length;
  }
}

/// A (stage, microbatch) on a rank, from F start to the end of its last backward (of F where it has none).
struct Life {
  Rank rank;
  Ns start = 0;
  Ns end = 0;
};

std::vector<Life> lives(const Trace& trace) {
  std::vector<const Span*> spans;
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) spans.push_back(&span);
  }
  const auto key = [](const Span* s) { return std::tie(s->rank, s->stage, s->microbatch); };
  std::sort(spans.begin(), spans.end(), [&](const Span* a, const Span* b) { return key(a) < key(b); });
  std::vector<Life> result;
  for (std::size_t i = 0; i < spans.size();) {
    Window forward, backward;
    const std::size_t begin = i;
    for (; i < spans.size() && key(spans[i]) == key(spans[begin]); ++i) {
      (spans[i]->kind == SpanKind::Forward ? forward : backward).cover(*spans[i]);
    }
    if (forward.first > forward.last) continue;
    result.push_back({spans[begin]->rank, forward.first, std::max(forward.last, backward.last)});
  }
  return result;
}

void countLive(const Trace& trace, std::vector<RankMetrics>& ranks) {
  struct Event {
    Rank rank;
    Ns time = 0;
    int order = 0;  ///< ends free before starts at the same instant, except the end of a life of no length
    int change = 0;
  };
  std::vector<Event> events;
  for (const Life& life : lives(trace)) {
    if (life.rank.value < 0 || life.rank.index() >= ranks.size()) continue;
    events.push_back({life.rank, life.start, 1, 1});
    events.push_back({life.rank, life.end, life.end > life.start ? 0 : 2, -1});
  }
  std::sort(events.begin(), events.end(),
            [](const Event& a, const Event& b) { return std::tie(a.rank, a.time, a.order) < std::tie(b.rank, b.time, b.order); });
  int live = 0;  // comes back to 0 at the end of each rank
  for (const Event& event : events) {
    live += event.change;
    int& peak = ranks[event.rank.index()].peakLiveMicrobatches;
    peak = std::max(peak, live);
  }
}

}  // namespace

Metrics metricsOf(const Trace& trace) {
  Metrics metrics;
  metrics.ranks.resize(static_cast<std::size_t>(std::max(0, trace.ranks)));
  for (std::size_t r = 0; r < metrics.ranks.size(); ++r) metrics.ranks[r].rank = Rank(r);
  for (const MemorySample& sample : trace.memory) {
    if (sample.rank.value < 0 || sample.rank.index() >= metrics.ranks.size()) continue;
    Bytes& peak = metrics.ranks[sample.rank.index()].peakBytes;
    peak = std::max(peak, sample.bytes);
  }

  Window whole;
  std::vector<Window> rows(metrics.ranks.size());
  for (const Span& span : trace.spans) {
    if (!isCompute(span.kind) || span.rank.value < 0 || span.rank.index() >= rows.size()) continue;
    whole.cover(span);
    rows[span.rank.index()].cover(span);
  }
  if (whole.first > whole.last) return metrics;
  metrics.makespan = whole.length();
  Ns stepEnd = whole.last;
  for (const Span& span : trace.spans) {
    if (span.kind == SpanKind::Optimizer || span.kind == SpanKind::ReduceGrad) stepEnd = std::max(stepEnd, span.end);
  }
  metrics.step = stepEnd - whole.first;
  for (const Window& row : rows) metrics.window = std::max(metrics.window, row.length());

  sweep(trace, whole, metrics.ranks);
  countLive(trace, metrics.ranks);
  Ns idle = 0;
  Ns busiest = 0;
  for (RankMetrics& rank : metrics.ranks) {
    rank.idle = metrics.makespan - rank.busy;
    idle += rank.idle;
    busiest = std::max(busiest, rank.busy);
  }
  if (metrics.makespan > 0) {
    metrics.bubbleFraction =
        static_cast<double>(idle) / (static_cast<double>(metrics.ranks.size()) * static_cast<double>(metrics.makespan));
    metrics.bubbleFractionWindow = 1.0 - static_cast<double>(busiest) / static_cast<double>(metrics.window);
  }
  return metrics;
}

}  // namespace pw
