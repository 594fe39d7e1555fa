#include "backends/traces/recovery/replay.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "backends/traces/events/events.h"
#include "backends/traces/events/spans.h"
#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

/// Direction, pipeline, stage, microbatch, and which of its kind.
using Key = std::tuple<bool, std::int32_t, std::int32_t, std::int32_t, std::int32_t>;

bool takesInput(const Span& span) {
  return span.kind == SpanKind::Forward || span.kind == SpanKind::Backward || span.kind == SpanKind::BackwardInput;
}

class Replay {
 public:
  Replay(std::vector<Span>& spans, int ranks, const RankPlaces& places)
      : spans_(spans), places_(places), rows_(static_cast<std::size_t>(ranks)) {}
  void run();

 private:
  [[nodiscard]] Key keyOf(const Span& span, std::int32_t stage, std::int32_t number) const {
    return {span.kind == SpanKind::Forward, places_.pipeline[span.rank.index()], stage, span.microbatch.value, number};
  }
  bool advance(std::size_t rank, bool wait);

  std::vector<Span>& spans_;
  const RankPlaces& places_;
  std::vector<std::vector<std::size_t>> rows_;  ///< of each rank: positions of its spans
  std::vector<std::size_t> next_;
  std::vector<Ns> busyUntil_;
  std::vector<std::int32_t> number_;  ///< of each span: which of those with its direction, stage and microbatch
  std::map<Key, std::optional<Ns>> done_;
};

/// Places what can be placed of a rank; whether that was any.
bool Replay::advance(std::size_t rank, bool wait) {
  bool any = false;
  for (std::size_t& next = next_[rank]; next < rows_[rank].size(); ++next) {
    const std::size_t at = rows_[rank][next];
    Span& span = spans_[at];
    Ns start = busyUntil_[rank];
    if (takesInput(span)) {
      const auto input = done_.find(keyOf(span, span.stage.value + (span.kind == SpanKind::Forward ? -1 : 1), number_[at]));
      if (input != done_.end() && !input->second && wait) return any;
      if (input != done_.end() && input->second) start = std::max(start, *input->second);
    }
    const Ns duration = span.end - span.start;
    span.start = start;
    span.end = start + duration;
    busyUntil_[rank] = std::max(busyUntil_[rank], span.end);
    if (takesInput(span)) done_[keyOf(span, span.stage.value, number_[at])] = span.end;
    any = true;
    wait = true;
  }
  return any;
}

void Replay::run() {
  std::map<Key, std::int32_t> counts;
  number_.resize(spans_.size());
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    rows_[spans_[i].rank.index()].push_back(i);
    if (!takesInput(spans_[i])) continue;
    number_[i] = counts[keyOf(spans_[i], spans_[i].stage.value, 0)]++;
    done_.emplace(keyOf(spans_[i], spans_[i].stage.value, number_[i]), std::nullopt);
  }
  next_.assign(rows_.size(), 0);
  busyUntil_.assign(rows_.size(), 0);
  while (true) {
    bool any = false;
    for (std::size_t r = 0; r < rows_.size(); ++r) any = advance(r, true) || any;
    if (any) continue;
    const auto left =
        std::ranges::find_if(rows_, [&](const auto& row) { return next_[static_cast<std::size_t>(&row - rows_.data())] < row.size(); });
    if (left == rows_.end()) break;
    advance(static_cast<std::size_t>(left - rows_.begin()), false);
  }
  sortSpans(spans_);
}

}  // namespace

void replayOrder(std::vector<Span>& spans, int ranks, const RankPlaces& places) { Replay(spans, ranks, places).run(); }

}  // namespace pw
