#pragma once

#include <QString>
#include <optional>
#include <vector>

#include "app/gui/timeline/drawing/scene.h"
#include "app/gui/timeline/facts/dependencies.h"
#include "simulator/report/explain.h"

namespace pw::gui {

/// Facts about one span.
struct SpanFacts {
  Source source = Source::Predicted;
  QString predictedName = QStringLiteral("predicted"), measuredName = QStringLiteral("measured");  ///< as the scene has them
  Span span;
  bool fully = false;             ///< whether the following, but for `other`, are known
  std::optional<Span> other;      ///< the same action in the other timeline
  bool isOtherWork = false;       ///< there is one, but of a stage that begins elsewhere, so that it is not `other`
  Ns wait = 0;                    ///< idle time of its rank before it; of a message: since its action was done
  std::optional<Span> waitedFor;  ///< the last of its inputs to arrive
  std::vector<Span> neededBy;     ///< messages and actions that need it, the earliest first
};

/// Without `dependencies` only what the span itself says. `bytes`: of messages, which timelines do not keep.
[[nodiscard]] SpanFacts factsOf(const SourcedSpan& at, const Timeline& timeline, const Dependencies* dependencies, Bytes bytes);
/// Bytes of a message of the cost table; 0: the table has no such message.
[[nodiscard]] Bytes bytesOf(const CostTable& costs, const Schedule& rows, const Span& message);
/// Bytes of the span of a trace that is this one; 0: the trace has none.
[[nodiscard]] Bytes bytesOf(const Trace& trace, const Span& span);

/// Two lines of plain text.
[[nodiscard]] QString detailsOf(const SpanFacts& facts);
/// Rich text of several short lines.
[[nodiscard]] QString tooltipOf(const SpanFacts& facts);

/// What the critical path consists of, in a line, and its ranks' shares.
[[nodiscard]] QString pathDetails(const CriticalPath& path);

/// A time as exact as `resolution` [ns]: `12.345 ms` where a pixel is a microsecond.
[[nodiscard]] QString timeText(Ns time, double resolution);

/// What ranks did in a range: a line for all and, below, a table with tabulators between columns, a row for each rank in the order given.
/// `measured` may be empty; `measuredName` is what it is called.
[[nodiscard]] QString rangeDetails(Ns from, Ns to, const std::vector<RangeTotals>& predicted, const std::vector<RangeTotals>& measured,
                                   const QString& measuredName, const std::vector<RankView>& order);

}  // namespace pw::gui
