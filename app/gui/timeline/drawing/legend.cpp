#include "app/gui/timeline/drawing/legend.h"

#include <QFontMetrics>
#include <QPainter>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/document/times.h"
#include "app/gui/timeline/drawing/look.h"
#include "app/gui/timeline/drawing/rows.h"

namespace pw::gui {
namespace {

struct Entry {
  Fill fill;
  QString name;
  bool hasBaseLine = false;
};

/// Whether columns of several blocks are drawn where all of the step is shown in so many pixels: of some of each rank's actions one and the
/// next are narrower than a pixel. Linear in ranks.
bool mergesBlocks(const Scene& scene, int pixels) {
  constexpr std::size_t kLooks = 256;
  const Ns pixel = endOf(scene) / std::max(1, pixels);
  for (const Source source : {Source::Predicted, Source::Measured}) {
    const Timeline* timeline = timelineFrom(scene, source);
    if (timeline == nullptr) continue;
    for (const Timeline::RankTracks& rank : timeline->ranks) {
      const SpanTrack& track = rank.compute;
      const auto isNarrow = [&](std::size_t i) { return isCompute(track.tags[i].kind) && track.end[i] - track.start[i] < pixel; };
      const std::size_t step = 1 + track.size() / kLooks;
      for (std::size_t i = 0; i + 1 < track.size(); i += step) {
        if (isNarrow(i) && isNarrow(i + 1)) return true;
      }
    }
  }
  return false;
}

std::vector<Entry> kindEntries(const Scene& scene, const Look& look) {
  std::vector<Entry> entries;
  KindTimes seen{};
  for (const auto& timeline : {scene.predicted, scene.measured}) {
    if (!timeline) continue;
    for (const Timeline::RankTracks& rank : timeline->ranks) {
      for (const SpanTrack* const track : {&rank.compute, &rank.communication}) {
        for (std::size_t k = 0; k < kSpanKinds && !track->busy.empty(); ++k) seen[k] += track->busy.back()[k];
      }
    }
  }
  const auto add = [&](SpanKind kind, const char* name) {
    if (seen[static_cast<std::size_t>(kind)] > 0) entries.push_back({look.of({kind, Stage(-1), Microbatch(-1), {}}), translated(name)});
  };
  add(SpanKind::Forward, QT_TRANSLATE_NOOP("Timeline", "forward"));
  add(SpanKind::Backward, QT_TRANSLATE_NOOP("Timeline", "backward"));
  add(SpanKind::BackwardInput, QT_TRANSLATE_NOOP("Timeline", "input gradient"));
  add(SpanKind::BackwardWeight, QT_TRANSLATE_NOOP("Timeline", "weight gradient"));
  add(SpanKind::Optimizer, QT_TRANSLATE_NOOP("Timeline", "optimizer"));
  add(SpanKind::Load, QT_TRANSLATE_NOOP("Timeline", "load, store"));
  const auto rows = layOutRows(scene).rows;  // low ones leave messages out
  if (std::ranges::none_of(rows, [](const Row& row) { return row.kind == Row::Kind::Communication; })) return entries;
  add(SpanKind::SendForward, QT_TRANSLATE_NOOP("Timeline", "activations sent"));
  add(SpanKind::SendBackward, QT_TRANSLATE_NOOP("Timeline", "gradients sent"));
  add(SpanKind::ReduceGrad, QT_TRANSLATE_NOOP("Timeline", "gradient sum"));
  return entries;
}

/// Of a legend of this width.
std::vector<Entry> entriesOf(const Scene& scene, const Look& look, int width) {
  std::vector<Entry> entries;
  if (scene.differences && scene.measured && !scene.comparesTimes) {
    entries.push_back(
        {look.ofDifference(std::nullopt), translated("not compared with %1: the splits differ").arg(whatHasTimes(scene.predictedName))});
  } else if (scene.differences && scene.measured) {
    for (const double error : {-0.5, -0.15, 0.0, 0.15, 0.5})
      entries.push_back({look.ofDifference(error), error == 0
                                                       ? translated("as predicted")
                                                       : QString(QChar(error < 0 ? 0x2212 : u'+')) +
                                                             QString::number(static_cast<int>(std::abs(error) * 100)) + translated(" %")});
    entries.push_back({look.ofDifference(std::nullopt), translated("not predicted")});
  } else if (scene.colourBy == ColourBy::Stage) {
    const int stages = std::max(scene.predicted ? scene.predicted->stages : 0, scene.measured ? scene.measured->stages : 0);
    for (int s = 0; s < stages; ++s)
      entries.push_back({look.of({SpanKind::Forward, Stage(s), Microbatch(0), {}}), translated("stage %1").arg(s)});
  } else if (scene.colourBy == ColourBy::Microbatch) {
    for (int m = 0; m < 8; ++m)
      entries.push_back({look.of({SpanKind::Forward, Stage(0), Microbatch(m), {}}), translated("microbatch %1").arg(m)});
  } else {
    entries = kindEntries(scene, look);
  }
  entries.push_back({look.bubble(), translated("bubble")});
  if (mergesBlocks(scene, width - labelWidth(scene)))
    entries.push_back({look.of({SpanKind::Forward, Stage(0), Microbatch(0), {}}), translated("several blocks in a pixel"), true});
  return entries;
}

/// Sizes of a legend's parts [pixels].
struct Sizes {
  explicit Sizes(const QFontMetrics& metrics)
      : box(std::max(8, metrics.height() * 3 / 4)), gap(metrics.height()), line(metrics.height() + 4) {}

  int box, gap, line;
};

/// An entry's place: the left end of its box, from that of the legend.
struct PlacedEntry {
  std::size_t entry = 0;
  int line = 0, x = 0, width = 0;
};

/// Where entries lie in so many lines, as far as they have room; where some have none, there is room for an ellipsis after the last one.
std::vector<PlacedEntry> placedEntries(const std::vector<Entry>& entries, const QFontMetrics& metrics, int width, int mostLines) {
  const Sizes sizes(metrics);
  const int ellipsis = metrics.horizontalAdvance(QStringLiteral("…")) + sizes.gap, start = sizes.gap / 2;
  std::vector<PlacedEntry> places;
  int line = 0, x = start;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const int needed = sizes.box * 2 + 5 + metrics.horizontalAdvance(entries[i].name);
    const auto fits = [&] { return x + needed + (line + 1 == mostLines && i + 1 < entries.size() ? ellipsis : 0) < width; };
    if (!fits() && x > start && line + 1 < mostLines) ++line, x = start;
    if (!fits()) break;
    places.push_back({i, line, x, needed});
    x += needed + sizes.gap;
  }
  return places;
}

int linesIn(const std::vector<PlacedEntry>& places) { return places.empty() ? 1 : places.back().line + 1; }

}  // namespace

int legendHeight(const Scene& scene, int width) {
  if (isEmpty(scene)) return 0;
  constexpr int kMostLines = 3, kMargin = 6;
  const QFontMetrics metrics(sceneFont(scene, 0.9));
  const auto places = placedEntries(entriesOf(scene, Look(scene, currentTheme()), width), metrics, width, kMostLines);
  return linesIn(places) * Sizes(metrics).line + kMargin;
}

void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme) {
  const Look look(scene, theme);
  painter.save();
  painter.setClipRect(area);
  painter.fillRect(area, theme.background);
  painter.setFont(sceneFont(scene, 0.9));
  const QFontMetrics metrics(painter.font());
  const Sizes sizes(metrics);
  const std::vector<Entry> entries = entriesOf(scene, look, area.width());
  const auto places = placedEntries(entries, metrics, area.width(), std::max(1, area.height() / sizes.line));
  const int top = area.top() + (area.height() - linesIn(places) * sizes.line) / 2;
  int end = area.left() + sizes.gap / 2;
  for (const auto& [entry, line, x, width] : places) {
    const QRect where(area.left() + x, top + line * sizes.line, width, sizes.line);
    Canvas canvas(painter, QRect(where.left(), where.top() + (sizes.line - sizes.box) / 2, sizes.box * 2, sizes.box));
    canvas.fill(Box{0, 0, sizes.box * 2, sizes.box}, entries[entry].fill);
    if (entries[entry].hasBaseLine) canvas.fill(Box{0, sizes.box - 2, sizes.box * 2, sizes.box}, look.ofBaseLine(entries[entry].fill));
    painter.setPen(theme.text);
    painter.drawText(where.adjusted(sizes.box * 2 + 5, 0, sizes.gap, 0), Qt::AlignVCenter, entries[entry].name);
    end = where.left() + width + sizes.gap;
  }
  if (places.size() < entries.size()) {
    painter.setPen(theme.faintText);
    painter.drawText(QRect(end, top + (linesIn(places) - 1) * sizes.line, area.right() - end, sizes.line), Qt::AlignVCenter,
                     QStringLiteral("…"));
  }
  painter.restore();
}

}  // namespace pw::gui
