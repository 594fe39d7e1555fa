#include "app/gui/timeline/drawing/legend.h"

#include <QFontMetrics>
#include <QPainter>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/timeline/drawing/look.h"
#include "app/gui/timeline/drawing/rows.h"

namespace pw::gui {
namespace {

struct Entry {
  Fill fill;
  QString name;
};

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

std::vector<Entry> entriesOf(const Scene& scene, const Look& look) {
  std::vector<Entry> entries;
  if (scene.differences && scene.measured) {
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
  return entries;
}

}  // namespace

void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme) {
  const Look look(scene, theme);
  painter.save();
  painter.setClipRect(area);
  painter.fillRect(area, theme.background);
  painter.setFont(sceneFont(scene, 0.9));
  const QFontMetrics metrics(painter.font());
  const int box = std::max(8, metrics.height() * 3 / 4), gap = metrics.height();
  int x = area.left() + gap / 2;
  const std::vector<Entry> entries = entriesOf(scene, look);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const Entry& entry = entries[i];
    const int width = box * 2 + 5 + metrics.horizontalAdvance(entry.name);
    const QString more = QStringLiteral("…");
    if (x + width + (i + 1 < entries.size() ? metrics.horizontalAdvance(more) + gap : 0) > area.right()) {
      painter.setPen(theme.faintText);
      painter.drawText(QRect(x, area.top(), area.right() - x, area.height()), Qt::AlignVCenter, more);
      break;
    }
    Canvas(painter, QRect(x, area.top() + (area.height() - box) / 2, box * 2, box)).fill(Box{0, 0, box * 2, box}, entry.fill);
    painter.setPen(theme.text);
    painter.drawText(QRect(x + box * 2 + 5, area.top(), width, area.height()), Qt::AlignVCenter, entry.name);
    x += width + gap;
  }
  painter.restore();
}

}  // namespace pw::gui
