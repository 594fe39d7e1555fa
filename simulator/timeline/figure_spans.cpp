#include "simulator/timeline/figure_spans.h"

#include <algorithm>

namespace pw {
namespace {

bool isDrawn(const Span& span) { return span.kind != SpanKind::WaitForward && span.kind != SpanKind::WaitBackward; }

bool isShown(const Span& span, const FigureStyle& style, const TimeRange& times) {
  if (!isDrawn(span) || !includes(style, span.rank) || (isBelow(span) && !style.messages)) return false;
  return !style.times || (span.start < times.to && span.end > times.from);
}

/// Busy time of the ranks within the times, as shares.
std::vector<double> busyShares(const FigureSpans& spans, const FigureStyle& style, const TimeRange& times) {
  Metrics metrics = spans.metrics;
  if (style.times) {
    Trace part{spans.trace->ranks, {}, {}};
    for (const auto& row : spans.rows) {
      for (const Span* span : row) {
        part.spans.push_back(*span);
        part.spans.back().start = std::max(span->start, times.from);
        part.spans.back().end = std::min(span->end, times.to);
      }
    }
    metrics = metricsOf(part);
  }
  const Ns whole = style.times ? times.to - times.from : metrics.makespan;
  std::vector<double> shares;
  for (const RankMetrics& rank : metrics.ranks)
    shares.push_back(whole > 0 ? static_cast<double>(rank.busy) / static_cast<double>(whole) : 0);
  return shares;
}

}  // namespace

bool isBelow(const Span& span) { return isMessage(span.kind) || isBeside(span); }

Ns endOf(const std::vector<FigureLane>& lanes) {
  Ns end = 1;
  for (const FigureLane& lane : lanes) {
    for (const Span& span : lane.trace->spans) {
      if (isDrawn(span)) end = std::max(end, span.end);
    }
  }
  return end;
}

FigureSpans spansOf(const FigureLane& lane, const FigureStyle& style, const TimeRange& times) {
  FigureSpans spans{lane.trace, lane.title, metricsOf(*lane.trace), {}, {}, 0, false};
  spans.rows.resize(static_cast<std::size_t>(std::max(0, lane.trace->ranks)));
  std::vector<std::int32_t> stageOf(spans.rows.size(), -1);
  for (const Span& span : lane.trace->spans) {
    if (span.rank.value < 0 || span.rank.index() >= spans.rows.size() || !isShown(span, style, times)) continue;
    spans.rows[span.rank.index()].push_back(&span);
    if (!isCompute(span.kind)) continue;
    std::int32_t& stage = stageOf[span.rank.index()];
    spans.severalStages = spans.severalStages || (stage >= 0 && stage != span.stage.value);
    stage = span.stage.value;
  }
  spans.busy = busyShares(spans, style, times);
  for (const RankMetrics& rank : spans.metrics.ranks) {
    if (includes(style, rank.rank)) spans.peak = std::max(spans.peak, rank.peakBytes);
  }
  return spans;
}

}  // namespace pw
