#include "app/gui/timeline/drawing/ruler.h"

#include <QFontMetrics>
#include <QPainter>
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "app/gui/common/format.h"
#include "app/gui/timeline/drawing/look.h"

namespace pw::gui {
namespace {

struct Unit {
  Ns size = 0;
  const char* name = "";
};
constexpr std::array<Unit, 4> kUnits{{{1'000'000'000, " s"}, {1'000'000, " ms"}, {1'000, " µs"}, {1, " ns"}}};

int decimalsOf(Ns step, Ns unit) {
  int decimals = 0;
  for (Ns u = unit; u > 1 && step % u != 0; u /= 10) ++decimals;
  return decimals;
}

Ns furthest(const Viewport& view) { return static_cast<Ns>(std::max(std::abs(view.start), std::abs(view.end()))); }

/// Where the selected range is on the ruler, at least a pixel wide.
QRect bandOf(const std::pair<Ns, Ns>& range, const QRect& area, const Viewport& view) {
  const auto x = [&](Ns time) {
    return area.left() + static_cast<int>(std::lround(std::clamp(view.xOf(time), -10.0, area.width() + 10.0)));
  };
  return {x(range.first), area.top(), std::max(1, x(range.second) - x(range.first)), area.height()};
}

/// How long the selected range is, within it or to its right.
void paintLength(QPainter& painter, const QRect& band, Ns length, const Theme& theme) {
  const QString text = durationText(length);
  const QFontMetrics metrics = painter.fontMetrics();
  const QSize size(metrics.horizontalAdvance(text) + 10, std::min(metrics.height() + 2, band.height() - 4));
  const bool inside = size.width() <= band.width();
  const QRect box(inside ? band.center().x() - size.width() / 2 : band.right() + 4, band.top() + 1, size.width(), size.height());
  painter.setPen(Qt::NoPen);
  painter.setBrush(theme.accent);
  painter.drawRoundedRect(box, 3, 3);
  painter.setPen(textOn(theme.accent));
  painter.drawText(box, Qt::AlignCenter, text);
}

/// Whether a row is called something besides its rank.
bool isNamed(const Scene& scene, const Row& row) {
  return row.kind != Row::Kind::Compute || (scene.predicted && scene.measured && scene.arrangement != Arrangement::Over);
}

/// The most that a rank has in one of the timelines; 0: it has no memory there.
Bytes peakOf(const Scene& scene, Source source, Rank rank) {
  const Timeline* timeline = timelineFrom(scene, source);
  return timeline != nullptr && rank.index() < timeline->ranks.size() ? timeline->ranks[rank.index()].memory.peak : 0;
}

/// What a row that `isNamed` is called besides its rank.
QString rowName(const Scene& scene, const Row& row) {
  const bool both = scene.predicted && scene.measured;
  switch (row.kind) {
    case Row::Kind::Compute:
      return !both || scene.arrangement == Arrangement::Over ? QString()
             : row.source == Source::Predicted               ? scene.predictedName
                                                             : scene.measuredName;
    case Row::Kind::Communication:
      return both && scene.arrangement != Arrangement::Over && row.source == Source::Measured ? scene.measuredName : translated("messages");
    case Row::Kind::Memory: {
      const Bytes peak = peakOf(scene, row.source, row.rank);
      return peak > 0 ? translated("peak %1").arg(sizeText(peak)) : translated("memory");
    }
  }
  return {};
}

/// The names of groups, each beside the ranks that are in it and follow one another on the screen.
void paintGroups(QPainter& painter, const QRect& area, const Scene& scene, const RowLayout& layout, int scroll, const Theme& theme) {
  const QFont font = sceneFont(scene, 0.75);
  const QFontMetrics metrics(font);
  const auto groupOf = [&](const Row& row) { return row.rank.index() < scene.groups.size() ? scene.groups[row.rank.index()] : QString(); };
  painter.setFont(font);
  for (std::size_t i = 0; i < layout.rows.size();) {
    const Row& first = layout.rows[i];
    const QString name = groupOf(first);
    while (i < layout.rows.size() && layout.rows[i].pinned == first.pinned && groupOf(layout.rows[i]) == name) ++i;
    const Row& last = layout.rows[i - 1];
    const int shift = area.top() - (first.pinned ? 0 : scroll), least = first.pinned ? area.top() : area.top() + layout.pinnedHeight;
    const int top = std::max(least, first.top + shift), bottom = std::min(area.bottom() + 1, last.top + last.height + shift);
    if (bottom <= top || name.isEmpty()) continue;
    const QRect box(area.left() + 1, top, area.width() - 2, bottom - top);
    painter.fillRect(box, theme.grid);
    const QString shown = metrics.elidedText(name, Qt::ElideRight, box.height() - 4);
    if (metrics.horizontalAdvance(shown) > box.height() || shown.size() < std::min<qsizetype>(name.size(), 4)) continue;
    painter.save();
    painter.translate(box.left(), box.bottom() + 1);
    painter.rotate(-90);
    painter.setPen(theme.text);
    painter.drawText(QRect(0, 0, box.height(), box.width()), Qt::AlignCenter, shown);
    painter.restore();
  }
}

}  // namespace

QString tickLabel(Ns time, Ns step, Ns most) {
  std::size_t unit = 0;
  while (unit + 1 < kUnits.size() && (most < kUnits[unit].size || decimalsOf(step, kUnits[unit].size) > 3)) ++unit;
  if (time == 0) return QString::number(0) + QString::fromUtf8(kUnits[unit].name);
  return QString::number(static_cast<double>(time) / static_cast<double>(kUnits[unit].size), 'f', decimalsOf(step, kUnits[unit].size)) +
         QString::fromUtf8(kUnits[unit].name);
}

Ns rulerStep(const Viewport& view, const Scene& scene) {
  const QFontMetrics metrics(sceneFont(scene, 0.9));
  Ns step = tickStep(view, 70);
  for (int i = 0; i < 3; ++i) {
    const int needed = metrics.horizontalAdvance(tickLabel(furthest(view), step, furthest(view))) + metrics.height() + 10;
    step = tickStep(view, std::max(70, needed));
  }
  return step;
}

void paintRuler(QPainter& painter, const QRect& area, const Scene& scene, const Viewport& view, const Theme& theme) {
  painter.save();
  painter.setClipRect(area);
  painter.fillRect(area, theme.alternate);
  painter.setFont(sceneFont(scene, 0.9));
  if (scene.range) {  // its ticks and their times are painted over it
    QColor tint = theme.accent;
    tint.setAlpha(64);
    painter.fillRect(bandOf(*scene.range, area, view), tint);
  }
  const Ns step = rulerStep(view, scene);
  const int parts = step % 5 == 0 || step == 1 ? 5 : 4;  // minor ticks: 1 and 5 by fifths, 2 by quarters
  const auto first = static_cast<std::int64_t>(std::floor(view.start / static_cast<double>(step))) - 1;
  const auto last = static_cast<std::int64_t>(std::ceil(view.end() / static_cast<double>(step)));
  const int bottom = area.bottom();
  for (std::int64_t tick = first; tick <= last; ++tick) {
    const Ns time = tick * step;
    const int x = area.left() + static_cast<int>(std::lround(view.xOf(time)));
    painter.setPen(theme.faintText);
    painter.drawLine(x, bottom - area.height() / 2, x, bottom);
    const QString label = tickLabel(time, step, furthest(view));
    if (time >= 0 && x + 4 + painter.fontMetrics().horizontalAdvance(label) <= area.right())
      painter.drawText(QRect(x + 4, area.top(), 400, area.height() - 4), Qt::AlignLeft | Qt::AlignVCenter, label);
    painter.setPen(theme.grid);
    for (int part = 1; part < parts && step > 1; ++part) {
      const int minor =
          area.left() + static_cast<int>(std::lround(view.xOf(time) + static_cast<double>(step) * part / parts / view.nsPerPixel));
      painter.drawLine(minor, bottom - 4, minor, bottom);
    }
  }
  if (scene.range) {
    const QRect band = bandOf(*scene.range, area, view);
    painter.fillRect(QRect(band.left(), bottom - 2, band.width(), 3), theme.accent);
    paintLength(painter, band, scene.range->second - scene.range->first, theme);
  }
  painter.setPen(theme.grid);
  painter.drawLine(area.left(), bottom, area.right(), bottom);
  painter.restore();
}

QStringList rowNames(const Scene& scene, const Row& row, int most) {
  if (!isNamed(scene, row)) return {};
  const bool isOfBoth = row.kind == Row::Kind::Memory && scene.predicted && scene.measured;
  if (!isOfBoth) return {rowName(scene, row)};
  const auto nameOf = [&](Source source) {
    const Bytes peak = peakOf(scene, source, row.rank);
    return QStringLiteral("%1 %2").arg(source == Source::Predicted ? scene.predictedName : scene.measuredName,
                                       peak > 0 ? sizeText(peak) : QStringLiteral("–"));
  };
  if (most < 2) return {nameOf(row.source)};  // whose curve is the filled one
  QStringList names{nameOf(Source::Predicted), nameOf(Source::Measured)};
  if (scene.arrangement == Arrangement::Above) std::ranges::reverse(names);
  return names;
}

void paintLabels(QPainter& painter, const QRect& whole, const Scene& scene, const RowLayout& layout, int scroll, const Theme& theme) {
  painter.save();
  painter.fillRect(whole, theme.alternate);
  const QRect area = whole.adjusted(groupWidth(scene), 0, 0, 0);
  if (area != whole) paintGroups(painter, QRect(whole.topLeft(), QSize(groupWidth(scene), whole.height())), scene, layout, scroll, theme);
  QFont strong = sceneFont(scene);
  strong.setWeight(QFont::DemiBold);
  const QFont small = sceneFont(scene, 0.8);
  const QFontMetrics strongMetrics(strong), smallMetrics(small);
  const int margin = std::max(6, area.width() / 10);
  std::optional<Rank> before;
  bool wasPinned = false;
  int free = 0;  // the first line that no label has yet: labels of low rows that would overlap are left out, the same ones at any scroll
  for (const Row& row : layout.rows) {
    const int y = area.top() + (row.pinned ? row.top : row.top - scroll);
    const bool first = before != row.rank;
    before = row.rank;
    if (std::exchange(wasPinned, row.pinned) && !row.pinned) free = 0;
    const auto takes = [&](int top, int height) {
      if (top < free) return false;
      free = top + height;
      return true;
    };
    const bool named = isNamed(scene, row);
    const bool two = first && named && row.height >= strongMetrics.height() * 9 / 10 + smallMetrics.height() * 8 / 10;
    // Digits and capitals are lower than the font.
    const int nameHeight = strongMetrics.height() * 9 / 10, extraHeight = smallMetrics.height() * 8 / 10;
    const bool hasName = first && takes(two ? row.top : row.top + (row.height - nameHeight) / 2, nameHeight);
    const QStringList extra = !first || two ? rowNames(scene, row, two ? 1 : row.height / (extraHeight + 2)) : QStringList();
    const int extraLines = static_cast<int>(extra.size()) * (extraHeight + 2) - 2;
    const bool hasExtra =
        !extra.empty() && takes(two ? row.top + row.height - extraLines : row.top + (row.height - extraLines) / 2, extraLines);
    const int least = row.pinned ? area.top() : area.top() + layout.pinnedHeight;
    if (y > area.bottom() || y + row.height + 2 < least) continue;
    painter.setClipRect(QRect(area.left(), least, area.width(), area.bottom() + 1 - least));
    QRect box(area.left() + margin, y, area.width() - margin - 4, row.height);
    if (first && row.pinned) painter.fillRect(QRect(area.left(), y, 3, row.height), theme.accent);
    const int beyond = std::max(2, strongMetrics.height() - row.height);
    if (hasName) {
      painter.setFont(row.height < nameHeight * 2 / 3 ? small : strong);
      painter.setPen(theme.text);
      const QRect line = two ? QRect(box.left(), box.top(), box.width(), strongMetrics.height()) : box.adjusted(0, -beyond, 0, beyond);
      painter.drawText(line, Qt::AlignLeft | Qt::AlignVCenter, translated("rank %1").arg(row.rank.value));
    }
    if (!hasExtra) continue;
    if (two) box.setTop(box.bottom() + 1 - smallMetrics.height());
    painter.setFont(small);
    painter.setPen(theme.faintText);
    if (extra.size() > 1) box.setHeight(box.height() - (extraHeight + 2) * static_cast<int>(extra.size() - 1));
    for (const QString& name : extra) {
      painter.drawText(box.adjusted(0, -2, 0, 2), Qt::AlignLeft | Qt::AlignVCenter,
                       smallMetrics.elidedText(name, Qt::ElideRight, box.width()));
      box.translate(0, extraHeight + 2);
    }
  }
  painter.setClipRect(area);
  painter.setPen(theme.grid);
  painter.drawLine(area.right(), area.top(), area.right(), area.bottom());
  painter.restore();
}

}  // namespace pw::gui
