#include "app/gui/timeline/facts/details.h"

#include <QStringList>
#include <algorithm>
#include <cmath>
#include <iterator>

#include "app/gui/common/format.h"
#include "app/gui/document/times.h"
#include "app/gui/timeline/facts/explanations.h"

namespace pw::gui {
namespace {

SpanTag tagOf(const Span& span) { return {span.kind, span.stage, span.microbatch, span.peer}; }

QString capitalized(QString text) {
  if (!text.isEmpty()) text[0] = text[0].toUpper();
  return text;
}

/// The rank or, for a message, both ends.
QString placeOf(const Span& span) {
  return isMessage(span.kind) ? translated("rank %1 → rank %2").arg(span.rank.value).arg(span.peer.value)
                              : translated("rank %1").arg(span.rank.value);
}

/// A resolution of a hundredth of the span distinguishes its ends.
double resolutionOf(const Span& span) { return static_cast<double>(span.end - span.start) / 100; }

QString timesOf(const Span& span) {
  return translated("%1 – %2").arg(timeText(span.start, resolutionOf(span)), timeText(span.end, resolutionOf(span)));
}

QString wordOf(SpanKind kind) {
  switch (kind) {
    case SpanKind::Forward: return translated("forward");
    case SpanKind::Backward: return translated("backward");
    case SpanKind::BackwardInput: return translated("input gradients");
    case SpanKind::BackwardWeight: return translated("weight gradients");
    case SpanKind::SendForward: return translated("activations sent");
    case SpanKind::SendBackward: return translated("gradients sent");
    case SpanKind::WaitForward:
    case SpanKind::WaitBackward: return translated("waiting");
    case SpanKind::ReduceGrad: return translated("summing gradients between ranks");
    case SpanKind::Optimizer: return translated("optimizer step");
    case SpanKind::Load: return translated("from the host");
    case SpanKind::Store: return translated("to the host");
  }
  return {};
}

/// `measured 3.20 ms, +3.1 %`, seen from either of the two; empty where there is nothing to compare with.
QString comparisonOf(const SpanFacts& facts) {
  if (!facts.other) {
    const QString& name = facts.source == Source::Predicted ? facts.measuredName : facts.predictedName;
    return facts.isOtherWork ? translated("not compared with %1: the splits differ").arg(whatHasTimes(name)) : QString();
  }
  const Ns own = facts.span.end - facts.span.start;
  const Ns other = facts.other->end - facts.other->start;
  const bool isPrediction = facts.source == Source::Predicted;
  const Ns predicted = isPrediction ? own : other, measured = isPrediction ? other : own;
  const QString& name = isPrediction ? facts.measuredName : facts.predictedName;
  if (facts.other->kind != facts.span.kind)  // a whole backward and a split one's part: other work, whose times have no ratio
    return QStringLiteral("%1 %2 %3").arg(name, nameOf(tagOf(*facts.other)), durationText(other));
  QString text = QStringLiteral("%1 %2").arg(name, durationText(other));
  if (predicted > 0)
    text += QStringLiteral(", ") + signedPercentText(static_cast<double>(measured - predicted) / static_cast<double>(predicted));
  return text;
}

QString waitText(const SpanFacts& facts) {
  if (!facts.waitedFor) return facts.wait > 0 ? translated("waited %1").arg(durationText(facts.wait)) : translated("has no predecessor");
  const Span& input = *facts.waitedFor;
  const QString what = isMessage(input.kind)           ? translated("%1 from rank %2").arg(nameOf(tagOf(input))).arg(input.rank.value)
                       : input.rank == facts.span.rank ? nameOf(tagOf(input))
                                                       : translated("%1 of rank %2").arg(nameOf(tagOf(input))).arg(input.rank.value);
  if (facts.wait > 0) return translated("waited %1 for %2").arg(durationText(facts.wait), what);
  return translated("follows %1").arg(what);
}

QString neededText(const SpanFacts& facts) {
  if (facts.neededBy.empty()) return translated("nothing waits for it");
  constexpr std::size_t kShown = 3;
  QStringList names;
  for (std::size_t i = 0; i < std::min(kShown, facts.neededBy.size()); ++i) {
    const Span& user = facts.neededBy[i];
    names << (isMessage(user.kind)           ? translated("%1 to rank %2").arg(nameOf(tagOf(user))).arg(user.peer.value)
              : user.rank == facts.span.rank ? nameOf(tagOf(user))
                                             : translated("%1 of rank %2").arg(nameOf(tagOf(user))).arg(user.rank.value));
  }
  if (facts.neededBy.size() > kShown) names << translated("%n more", nullptr, static_cast<int>(facts.neededBy.size() - kShown));
  return translated("needed by %1").arg(names.join(QStringLiteral(", ")));
}

QString shareOf(Ns part, Ns whole) {
  return whole > 0 ? percentText(static_cast<double>(part) / static_cast<double>(whole)) : percentText(0);
}

RangeTotals sumOf(const std::vector<RangeTotals>& ranks) {
  RangeTotals sum;
  for (const RangeTotals& rank : ranks) {
    sum.busy += rank.busy;
    sum.bubble += rank.bubble;
    sum.communication += rank.communication;
  }
  return sum;
}

QString sumText(const std::vector<RangeTotals>& ranks) {
  const RangeTotals sum = sumOf(ranks);
  return translated("busy %1, bubble %2, communication %3")
      .arg(shareOf(sum.busy, sum.busy + sum.bubble), shareOf(sum.bubble, sum.busy + sum.bubble), durationText(sum.communication));
}

}  // namespace

SpanFacts factsOf(const SourcedSpan& at, const Timeline& timeline, const Dependencies* dependencies, Bytes bytes) {
  SpanFacts facts;
  facts.source = at.source;
  facts.span = spanOf(timeline, at.span);
  if (bytes > 0) facts.span.bytes = bytes;
  if (dependencies == nullptr) return facts;
  facts.fully = true;
  if (const auto awaited = dependencies->awaited(at.span)) facts.waitedFor = spanOf(timeline, *awaited);
  for (const SpanRef& output : dependencies->outputs(at.span)) facts.neededBy.push_back(spanOf(timeline, output));
  Ns ready = 0;
  if (at.span.track == TrackKind::Compute) {
    ready = gapOf(timeline, {at.source, at.span.rank, at.span.index}).first;
  } else if (facts.waitedFor) {
    ready = facts.waitedFor->end;
  } else {
    ready = facts.span.start;
  }
  facts.wait = std::max<Ns>(0, facts.span.start - ready);
  return facts;
}

Bytes bytesOf(const CostTable& costs, const Schedule& rows, const Span& message) {
  if (!isMessage(message.kind)) return 0;
  for (const MessageCost& m : costs.messages) {
    const bool same =
        m.from == message.stage && m.backward == (message.kind == SpanKind::SendBackward) && m.to.index() < rows.placement.stages();
    if (same && rows.placement.rankOf(m.to, message.microbatch) == message.peer) return m.bytes;
  }
  return 0;
}

Bytes bytesOf(const Trace& trace, const Span& span) {
  const auto earlier = [](const Span& a, Ns start) { return a.start < start; };
  for (auto at = std::lower_bound(trace.spans.begin(), trace.spans.end(), span.start, earlier);
       at != trace.spans.end() && at->start == span.start; ++at) {
    if (at->rank == span.rank && tagOf(*at) == tagOf(span) && at->end == span.end) return at->bytes;
  }
  return 0;
}

QString detailsOf(const SpanFacts& facts) {
  const Span& span = facts.span;
  QStringList first{capitalized(nameOf(tagOf(span)))};
  first << placeOf(span) << timesOf(span) << translated("takes %1").arg(durationText(span.end - span.start));
  if (span.bytes > 0) first << sizeText(span.bytes);
  if (facts.source == Source::Measured) first << facts.measuredName;
  if (const QString comparison = comparisonOf(facts); !comparison.isEmpty()) first << comparison;
  const QString second = facts.fully ? capitalized(waitText(facts)) + QStringLiteral(" · ") + neededText(facts) : QString();
  return first.join(QStringLiteral(" · ")) + QLatin1Char('\n') + second;
}

QString tooltipOf(const SpanFacts& facts) {
  const Span& span = facts.span;
  QStringList lines{
      QStringLiteral("<b>%1</b> · %2").arg(capitalized(nameOf(tagOf(span))).toHtmlEscaped(), wordOf(span.kind).toHtmlEscaped())};
  QStringList where{placeOf(span)};
  if (span.stage.value >= 0) where << translated("stage %1").arg(span.stage.value);
  if (span.microbatch.value >= 0) where << translated("microbatch %1").arg(span.microbatch.value);
  lines << where.join(QStringLiteral(" · "));
  lines << translated("starts at %1, takes %2").arg(timeText(span.start, resolutionOf(span)), durationText(span.end - span.start));
  if (span.bytes > 0) lines << sizeText(span.bytes);
  if (facts.source == Source::Measured) lines << facts.measuredName;
  if (const QString comparison = comparisonOf(facts); !comparison.isEmpty()) lines << comparison;
  return QStringLiteral("<p style='white-space:pre'>%1</p>").arg(lines.join(QStringLiteral("<br>")));
}

namespace {

struct Unit {
  double ns;
  const char* name;
};

const Unit* unitOf(Ns time) {
  static constexpr Unit kUnits[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}, {1, "ns"}};
  const double size = std::abs(static_cast<double>(time));
  return std::find_if(std::begin(kUnits), std::end(kUnits) - 1, [&](const Unit& u) { return size >= u.ns; });
}

QString inUnit(Ns time, double resolution, const Unit* unit) {
  const int most = static_cast<int>(std::lround(std::log10(unit->ns)));
  const int decimals = resolution > 0 ? static_cast<int>(std::ceil(std::log10(unit->ns / resolution))) : most;
  return QStringLiteral("%1 %2")
      .arg(static_cast<double>(time) / unit->ns, 0, 'f', std::clamp(decimals, 0, most))
      .arg(QString::fromUtf8(unit->name));
}

}  // namespace

QString timeText(Ns time, double resolution) { return inUnit(time, resolution, unitOf(time)); }

QString pathDetails(const CriticalPath& path) {
  if (path.segments.empty()) return {};
  Ns compute = 0;
  QStringList ranks;
  for (std::size_t r = 0; r < path.compute.size(); ++r) {
    const CriticalPath::Share& share = path.compute[r];
    const Ns own = share.forward + share.backward + share.backwardInput + share.backwardWeight + share.slot + share.host;
    compute += own;
    if (own > 0) ranks << translated("rank %1: %2").arg(r).arg(durationText(own));
  }
  const Ns whole = path.segments.back().to - path.segments.front().from;
  return translated("Critical path %1: compute %2 (%3), messages %4, waiting for channels %5")
             .arg(durationText(whole), durationText(compute), shareOf(compute, whole), durationText(path.transfer + path.latency),
                  durationText(path.queue)) +
         QLatin1Char('\n') + ranks.join(QStringLiteral(" · "));
}

QString rangeDetails(Ns from, Ns to, const std::vector<RangeTotals>& predicted, const std::vector<RangeTotals>& measured,
                     const QString& measuredName, const std::vector<RankView>& order) {
  const bool both = !predicted.empty() && !measured.empty();
  const double resolution = static_cast<double>(to - from) / 100;
  QString text = translated("Range %1 – %2 (%3)")
                     .arg(inUnit(from, resolution, unitOf(to)), inUnit(to, resolution, unitOf(to)), durationText(to - from));
  if (!predicted.empty()) text += QStringLiteral(" · ") + (both ? translated("predicted: %1").arg(sumText(predicted)) : sumText(predicted));
  if (!measured.empty()) text += QStringLiteral(" · ") + QStringLiteral("%1: %2").arg(measuredName, sumText(measured));
  QStringList header{translated("Rank"), translated("Busy"), translated("Bubble"), translated("Communication")};
  if (both)
    header << translated("Busy, %1").arg(measuredName) << translated("Bubble, %1").arg(measuredName)
           << translated("Communication, %1").arg(measuredName);
  text += QLatin1Char('\n') + header.join(QLatin1Char('\t'));
  for (const RankView& view : order) {
    QStringList row{QString::number(view.rank.value)};
    const auto add = [&](const std::vector<RangeTotals>& all) {
      const RangeTotals own = view.rank.index() < all.size() ? all[view.rank.index()] : RangeTotals{};
      const Ns whole = own.busy + own.bubble;
      row << QStringLiteral("%1 (%2)").arg(durationText(own.busy), shareOf(own.busy, whole))
          << QStringLiteral("%1 (%2)").arg(durationText(own.bubble), shareOf(own.bubble, whole)) << durationText(own.communication);
    };
    if (!predicted.empty()) add(predicted);
    if (!measured.empty()) add(measured);
    text += QLatin1Char('\n') + row.join(QLatin1Char('\t'));
  }
  return text;
}

}  // namespace pw::gui
