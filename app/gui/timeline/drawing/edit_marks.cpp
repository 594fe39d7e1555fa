#include "app/gui/timeline/drawing/edit_marks.h"

#include <QPainter>
#include <QPainterPath>
#include <algorithm>
#include <cmath>

namespace pw::gui {
namespace {

constexpr int kMostOutlines = 4000;  ///< of a frame; more of them are narrower than what they would show
constexpr double kNarrowest = 3;     ///< block that has an outline [pixels]

/// An arrow between two points, with its head at the end.
void paintArrow(QPainter& p, QPointF from, QPointF to, const QColor& colour) {
  const QPointF line = to - from;
  const double length = std::hypot(line.x(), line.y());
  if (length < 4) return;
  constexpr double kHead = 8;
  const QPointF along = line / length, across(-along.y(), along.x());
  p.setPen(QPen(colour, 2));
  p.drawLine(from, to - along * kHead);
  QPainterPath head(to);
  head.lineTo(to - along * kHead + across * (kHead / 2));
  head.lineTo(to - along * kHead - across * (kHead / 2));
  head.closeSubpath();
  p.fillPath(head, colour);
}

QPen penOf(bool isLegal, int width, const Theme& theme) {
  return {isLegal ? theme.accent : theme.error, static_cast<qreal>(width), isLegal ? Qt::SolidLine : Qt::DashLine};
}

}  // namespace

void paintOutlines(QPainter& p, const Geometry& where, const Timeline& of, const std::function<bool(const SpanRef&)>& draws) {
  int painted = 0;
  const Viewport& view = where.view;
  const double left = where.tracks().left(), narrowest = kNarrowest * view.nsPerPixel;
  for (std::size_t r = 0; r < of.ranks.size(); ++r) {
    const auto row = where.rectOf(Rank{r}, static_cast<Ns>(view.start), static_cast<Ns>(view.end()));
    if (!row) continue;
    const SpanTrack& track = of.ranks[r].compute;
    const auto [first, last] = visible(track, static_cast<Ns>(view.start), static_cast<Ns>(view.end()));
    for (std::size_t i = first; i < last && painted < kMostOutlines; ++i) {
      const auto time = static_cast<double>(track.end[i] - track.start[i]);
      if (time < narrowest || !draws({Rank{r}, TrackKind::Compute, static_cast<std::int32_t>(i)})) continue;
      const double width = time / view.nsPerPixel;
      p.drawRect(QRectF(left + view.xOf(track.start[i]), row->top() + 1, width - 1, row->height() - 3));
      ++painted;
    }
  }
}

void paintGhost(QPainter& p, const Geometry& where, const Timeline& before, const Theme& theme) {
  QColor line = theme.text;
  line.setAlpha(110);
  p.setPen(QPen(line, 1, Qt::DotLine));
  p.setBrush(Qt::NoBrush);
  paintOutlines(p, where, before, [](const SpanRef&) { return true; });
  const double end = where.view.xOf(before.end);
  const QRect area = where.tracks();
  if (end >= 0 && end <= where.view.width) p.drawLine(QPointF(area.left() + end, area.top()), QPointF(area.left() + end, area.bottom()));
}

void paintRoom(QPainter& p, const Geometry& where, Rank rank, const std::pair<Ns, Ns>& room, const Theme& theme) {
  const auto rect = where.rectOf(rank, room.first, room.second);
  if (!rect) return;
  QColor fill = theme.accent;
  fill.setAlpha(40);
  p.fillRect(rect->adjusted(0, -2, 0, 2), fill);
}

void paintGoal(QPainter& p, const Geometry& where, Rank rank, bool isLegal, const Theme& theme) {
  const auto row = where.rectOf(rank, static_cast<Ns>(where.view.start), static_cast<Ns>(where.view.end()));
  if (!row) return;
  p.setPen(penOf(isLegal, 2, theme));
  p.setBrush(Qt::NoBrush);
  p.drawRect(row->adjusted(1, 1, -1, -1));
}

void paintDrop(QPainter& p, const Geometry& where, Rank rank, Ns at, bool isLegal, const Theme& theme) {
  const auto rect = where.rectOf(rank, at, at);
  if (!rect) return;
  p.setPen(penOf(isLegal, 3, theme));
  p.drawLine(QPointF(rect->left(), rect->top() - 3), QPointF(rect->left(), rect->bottom() + 3));
}

void paintCycle(QPainter& p, const std::vector<QPointF>& centres, const QColor& colour) {
  for (std::size_t i = 0; i < centres.size(); ++i) {
    QPointF from = centres[i], to = centres[(i + 1) % centres.size()];
    if (centres.size() == 2) {  // there and back, side by side
      const QPointF line = to - from;
      const double length = std::max(1.0, std::hypot(line.x(), line.y()));
      const QPointF aside(-line.y() / length * 5, line.x() / length * 5);
      from += aside;
      to += aside;
    }
    paintArrow(p, from, to, colour);
  }
}

}  // namespace pw::gui
