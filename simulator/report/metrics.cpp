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

/// When spans of one rank begin and end, each list in order after `sort`.
struct Intervals {
  std::vector<Ns> begins, ends;

  void add(Ns begin, Ns end) {
    begins.push_back(begin);
    ends.push_back(end);
  }
  /// A trace has its spans in order of their begins, and mostly of their ends as well.
  void sort() {
    for (std::vector<Ns>* times : {&begins, &ends}) {
      if (!std::ranges::is_sorted(*times)) std::ranges::sort(*times);
    }
  }
};

/// Goes along intervals, none of which is empty.
class Sweep {
 public:
  static constexpr Ns kNever = std::numeric_limits<Ns>::max();

  explicit Sweep(const Intervals& intervals) : intervals_(intervals) {}
  /// When the next one begins or ends.
  [[nodiscard]] Ns next() const {
    const auto at = [](const std::vector<Ns>& times, std::size_t i) { return i < times.size() ? times[i] : kNever; };
    return std::min(at(intervals_.begins, begun_), at(intervals_.ends, ended_));
  }
  void moveTo(Ns time) {
    while (begun_ < intervals_.begins.size() && intervals_.begins[begun_] <= time) ++begun_;
    while (ended_ < intervals_.ends.size() && intervals_.ends[ended_] <= time) ++ended_;
  }
  [[nodiscard]] std::size_t open() const { return begun_ - ended_; }

 private:
  const Intervals& intervals_;
  std::size_t begun_ = 0, ended_ = 0;
};

/// Busy time and exposed communication of every rank, by sweeping its compute spans and the messages to it.
void sumTimes(const Trace& trace, const Window& whole, std::vector<RankMetrics>& ranks) {
  std::vector<Intervals> computes(ranks.size()), messages(ranks.size());
  const auto add = [](std::vector<Intervals>& of, Rank rank, Ns begin, Ns end) {
    if (begin < end && rank.value >= 0 && rank.index() < of.size()) of[rank.index()].add(begin, end);
  };
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind)) {
      add(computes, span.rank, span.start, span.end);
    } else if (isMessage(span.kind)) {
      add(messages, span.peer, std::max(span.start, whole.first), std::min(span.end, whole.last));
    }
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    computes[r].sort();
    messages[r].sort();
    Sweep computing(computes[r]), receiving(messages[r]);
    Ns time = 0;
    for (Ns next = std::min(computing.next(), receiving.next()); next != Sweep::kNever;
         next = std::min(computing.next(), receiving.next())) {
      if (computing.open() > 0) {
        ranks[r].busy += next - time;
      } else if (receiving.open() > 0) {
        ranks[r].exposedComm += next - time;
      }
      time = next;
      computing.moveTo(time);
      receiving.moveTo(time);
    }
  }
}

/// Each (stage, microbatch) of a rank, from F start to the end of its last backward (of F where it has none); one of no length lives for
/// an instant. `spans`: its compute spans, in any order; sorted on return.
Intervals livesOf(std::vector<const Span*>& spans) {
  const auto key = [](const Span* s) { return std::tie(s->stage, s->microbatch); };
  std::ranges::sort(spans, {}, key);
  Intervals lives;
  for (std::size_t i = 0; i < spans.size();) {
    Window forward, backward;
    const std::size_t begin = i;
    for (; i < spans.size() && key(spans[i]) == key(spans[begin]); ++i) {
      (spans[i]->kind == SpanKind::Forward ? forward : backward).cover(*spans[i]);
    }
    if (forward.first > forward.last) continue;
    const Ns end = std::max(forward.last, backward.last);
    lives.add(forward.first, end > forward.first || end == Sweep::kNever ? end : end + 1);
  }
  return lives;
}

/// Lives end before others start at the same instant.
void countLive(const Trace& trace, std::vector<RankMetrics>& ranks) {
  std::vector<std::vector<const Span*>> spans(ranks.size());
  for (const Span& span : trace.spans) {
    if (isCompute(span.kind) && span.rank.value >= 0 && span.rank.index() < ranks.size()) spans[span.rank.index()].push_back(&span);
  }
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Intervals lives = livesOf(spans[r]);
    lives.sort();
    Sweep sweep(lives);
    for (const Ns begin : lives.begins) {
      sweep.moveTo(begin);
      ranks[r].peakLiveMicrobatches = std::max(ranks[r].peakLiveMicrobatches, static_cast<int>(sweep.open()));
    }
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

  sumTimes(trace, whole, metrics.ranks);
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
