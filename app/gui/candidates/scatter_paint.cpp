#include <QPainter>
#include <QPolygonF>
#include <algorithm>
#include <cmath>

#include "app/gui/candidates/scatter.h"
#include "app/gui/common/format.h"
#include "app/gui/common/theme.h"
#include "app/gui/timeline/drawing/legend.h"

namespace pw::gui {
namespace {

QPolygonF diamond(const QPointF& at, double radius) {
  return QPolygonF({at + QPointF(0, -radius), at + QPointF(radius, 0), at + QPointF(0, radius), at + QPointF(-radius, 0)});
}

void drawMark(QPainter& painter, const QPointF& at, const ScatterPoint& point, double radius, const Theme& t) {
  if (point.front) {
    painter.setPen(QPen(t.background, 1));
    painter.setBrush(point.fits ? t.accent : t.faintText);
    painter.drawPolygon(diamond(at, radius * 1.25));
  } else {
    painter.setPen(QPen(point.fits ? t.faintText : faded(t.faintText, 0.7), 1.2));
    painter.setBrush(point.fits ? faded(t.accent, 0.35) : QColor(Qt::transparent));
    painter.drawEllipse(at, radius * 0.85, radius * 0.85);
  }
}

/// Of a job whose traces do not show memory nobody knows it.
QString peakText(Bytes bytes) { return bytes > 0 ? sizeText(bytes) : translated("memory not known"); }

void drawCross(QPainter& painter, const QPointF& at, double radius, const Theme& t) {
  for (const bool halo : {true, false}) {
    painter.setPen(QPen(halo ? t.background : t.focus, halo ? 5 : 2.4, Qt::SolidLine, Qt::RoundCap));
    painter.drawLine(at - QPointF(radius, 0), at + QPointF(radius, 0));
    painter.drawLine(at - QPointF(0, radius), at + QPointF(0, radius));
  }
}

}  // namespace

QRectF CandidatesScatter::plot() const {
  const QFontMetricsF metrics(font());
  const double left = metrics.horizontalAdvance(QStringLiteral("1023.9 MiB")) + 10;
  const double top = 2 * metrics.height() + 10, bottom = 2 * metrics.height() + 10;
  return {left, top, std::max(20.0, width() - left - 12), std::max(20.0, height() - top - bottom)};
}

QPointF CandidatesScatter::toPlace(double time, double bytes) const {
  const QRectF area = plot();
  return {area.left() + area.width() * time_.place(time), area.bottom() - area.height() * memory_.place(bytes)};
}

QPointF CandidatesScatter::toPlace(const TimeAndMemory& plan) const {
  return toPlace(static_cast<double>(plan.time), static_cast<double>(plan.bytes));
}

QString CandidatesScatter::wordsOf(int index) const {
  const ScatterPoint& p = points_[static_cast<std::size_t>(index)];
  return tr("%1: %2, %3").arg(p.title, durationText(p.time), peakText(p.bytes));
}

void CandidatesScatter::paintEvent(QPaintEvent*) {
  QPainter painter(this);
  painter.setRenderHint(QPainter::Antialiasing);
  painter.fillRect(rect(), currentTheme().background);
  paintAxes(painter);
  paintLimit(painter);
  paintFront(painter);
  paintPoints(painter);
  paintCurrent(painter);
  paintLegend(painter);
  if (selected_ >= 0 && selected_ != hovered_) paintLabel(painter, selected_);
  if (hovered_ >= 0) paintLabel(painter, hovered_);
  if (hasFocus()) {
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(currentTheme().focus, 2));
    painter.drawRect(QRectF(rect()).adjusted(1, 1, -1, -1));
  }
}

void CandidatesScatter::paintAxes(QPainter& painter) const {
  const Theme& t = currentTheme();
  const QRectF area = plot();
  const QFontMetricsF metrics(font());
  const int across = std::max(2, static_cast<int>(area.width() / (metrics.horizontalAdvance(QStringLiteral("123.45 ms")) * 1.5)));
  const int upward = std::max(2, static_cast<int>(area.height() / (metrics.height() * 2.2)));
  painter.setPen(QPen(t.grid, 1));
  painter.setBrush(Qt::NoBrush);
  painter.drawRect(area);
  for (const double tick : time_.ticks(across, false)) {
    const double x = toPlace(tick, 0).x();
    painter.setPen(QPen(t.grid, 1));
    painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()));
    painter.setPen(t.faintText);
    const QString text = durationText(Ns(std::llround(tick)));
    const double wide = metrics.horizontalAdvance(text) + 2;
    painter.drawText(QRectF(std::min(x - wide / 2, width() - wide), area.bottom() + 3, wide, metrics.height()),
                     Qt::AlignHCenter | Qt::AlignTop, text);
  }
  for (const double tick : memory_.ticks(upward, true)) {
    const double y = toPlace(0, tick).y();
    painter.setPen(QPen(t.grid, 1));
    painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y));
    painter.setPen(t.faintText);
    painter.drawText(QRectF(0, y - metrics.height() / 2, area.left() - 6, metrics.height()), Qt::AlignRight | Qt::AlignVCenter,
                     sizeText(Bytes(std::llround(tick))));
  }
  painter.setPen(t.text);
  painter.drawText(QRectF(area.left(), area.bottom() + 3 + metrics.height(), area.width(), metrics.height() + 2),
                   Qt::AlignRight | Qt::AlignVCenter, timeTitle_);
  painter.drawText(QRectF(6, metrics.height() + 5, width() - 12, metrics.height()), Qt::AlignLeft | Qt::AlignVCenter,
                   tr("Peak memory of a rank"));
}

void CandidatesScatter::paintLimit(QPainter& painter) const {
  if (limit_ <= 0 || points_.empty()) return;
  const Theme& t = currentTheme();
  const QRectF area = plot();
  const double y = toPlace(0, static_cast<double>(limit_)).y();
  const QString words = tr("limit %1").arg(sizeText(limit_));
  const QFontMetricsF metrics(font());
  painter.setPen(t.error);
  if (y < area.top()) {
    painter.drawText(QRectF(area.left(), area.top() + 2, area.width() - 6, metrics.height()), Qt::AlignRight | Qt::AlignTop,
                     QStringLiteral("↑ ") + words);
    return;
  }
  const double line = std::min(y, area.bottom());
  painter.fillRect(QRectF(area.topLeft(), QPointF(area.right(), line)), faded(t.error, 0.06));
  painter.setPen(QPen(t.error, 1.5, Qt::DashLine));
  painter.drawLine(QPointF(area.left(), line), QPointF(area.right(), line));
  const bool above = line - area.top() > metrics.height() + 4;
  painter.drawText(QRectF(area.left(), above ? line - metrics.height() - 2 : line + 2, area.width() - 6, metrics.height()),
                   Qt::AlignRight | Qt::AlignVCenter, words);
}

/// A staircase: up to the next faster plan nothing is better than this one.
void CandidatesScatter::paintFront(QPainter& painter) const {
  if (std::ranges::any_of(points_, [](const ScatterPoint& p) { return p.ranks > 0; })) return;  // a front for each number of ranks
  std::vector<QPointF> corners;
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (points_[i].front) corners.push_back(positionOf(static_cast<int>(i)));
  }
  if (corners.empty()) return;
  std::ranges::sort(corners, [](const QPointF& a, const QPointF& b) { return a.x() != b.x() ? a.x() < b.x() : a.y() > b.y(); });
  const QRectF area = plot();
  QPolygonF line{QPointF(corners.front().x(), area.top())};
  for (std::size_t i = 0; i < corners.size(); ++i) {
    line << corners[i];
    if (i + 1 < corners.size()) line << QPointF(corners[i + 1].x(), corners[i].y());
  }
  line << QPointF(area.right(), corners.back().y());
  painter.setBrush(Qt::NoBrush);
  painter.setPen(QPen(faded(currentTheme().accent, 0.75), 1.6));
  painter.drawPolyline(line);
}

void CandidatesScatter::paintPoints(QPainter& painter) const {
  const Theme& t = currentTheme();
  const double radius = std::max(3.5, fontMetrics().height() * 0.27);
  painter.setPen(Qt::NoPen);
  painter.setBrush(faded(t.faintText, 0.45));
  for (std::size_t i = 0; i < points_.size(); ++i) {
    if (!points_[i].shown) painter.drawEllipse(positionOf(static_cast<int>(i)), 1.5, 1.5);
  }
  std::vector<QRectF> numbers;  // of ranks, those that are drawn
  for (const bool front : {false, true}) {
    for (std::size_t i = 0; i < points_.size(); ++i) {
      if (!points_[i].shown || points_[i].front != front) continue;
      const QPointF at = positionOf(static_cast<int>(i));
      drawMark(painter, at, points_[i], radius * points_[i].scale, t);
      if (!front || points_[i].ranks == 0) continue;
      const QString number = QString::number(points_[i].ranks);
      const QPointF base = at + QPointF(radius * points_[i].scale + 3, -3);
      const QRectF box(base - QPointF(1, fontMetrics().ascent()),
                       QSizeF(fontMetrics().horizontalAdvance(number) + 2, fontMetrics().height()));
      if (std::ranges::any_of(numbers, [&](const QRectF& other) { return other.intersects(box); })) continue;
      numbers.push_back(box);
      painter.setPen(t.text);
      painter.drawText(base, number);
    }
  }
  for (const int index : {selected_, hovered_}) {
    if (index < 0) continue;
    drawMark(painter, positionOf(index), points_[static_cast<std::size_t>(index)], radius * 1.25, t);
    painter.setBrush(Qt::NoBrush);
    painter.setPen(QPen(index == selected_ ? t.focus : t.text, 2));
    painter.drawEllipse(positionOf(index), radius * 2.1, radius * 2.1);
  }
}

void CandidatesScatter::paintCurrent(QPainter& painter) const {
  if (current_ && !points_.empty()) drawCross(painter, toPlace(*current_), std::max(5.0, fontMetrics().height() * 0.4), currentTheme());
}

void CandidatesScatter::paintLegend(QPainter& painter) const {
  if (points_.empty()) return;
  const Theme& t = currentTheme();
  const QFontMetricsF metrics(font());
  const double radius = std::max(3.5, metrics.height() * 0.27), y = 4 + metrics.height() / 2;
  double x = 6 + radius;
  const auto entry = [&](const QString& words, const auto& draw) {
    const double wide = metrics.horizontalAdvance(words);
    if (x + radius + 5 + wide > width() - 4) return;
    draw(QPointF(x, y));
    painter.setPen(t.faintText);
    painter.drawText(QRectF(x + radius + 5, y - metrics.height() / 2, wide + 2, metrics.height()), Qt::AlignVCenter, words);
    x += radius * 2 + wide + metrics.averageCharWidth() * 2.5;
  };
  const auto mark = [&](bool front, bool fits) {
    return [&, front, fits](const QPointF& at) { drawMark(painter, at, {0, 0, front, fits, true, {}, 0, 1}, radius, t); };
  };
  const bool ranks = std::ranges::any_of(points_, [](const ScatterPoint& p) { return p.ranks > 0; });
  entry(ranks ? tr("Pareto front, with its ranks") : tr("Pareto front"), mark(true, true));
  if (current_) entry(tr("current plan"), [&](const QPointF& at) { drawCross(painter, at, radius * 1.3, t); });
  entry(tr("other plans"), mark(false, true));
  if (limit_ > 0) entry(tr("too large"), mark(false, false));
}

void CandidatesScatter::paintLabel(QPainter& painter, int index) const {
  const Theme& t = currentTheme();
  const ScatterPoint& p = points_[static_cast<std::size_t>(index)];
  const QFontMetricsF metrics(font());
  const QString figures = tr("%1, %2").arg(durationText(p.time), peakText(p.bytes));
  const double wide = std::max(metrics.horizontalAdvance(p.title), metrics.horizontalAdvance(figures)) + 14,
               high = 2 * metrics.height() + 8;
  const QPointF at = positionOf(index);
  QRectF box(at.x() + 14, at.y() - high - 8, wide, high);
  if (box.right() > width() - 3) box.moveRight(std::max(wide + 3, at.x() - 14));
  if (box.top() < 3) box.moveTop(at.y() + 12);
  painter.setPen(QPen(index == selected_ ? t.focus : t.faintText, 1));
  painter.setBrush(faded(t.alternate, 0.96));
  painter.drawRoundedRect(box, 4, 4);
  painter.setPen(t.text);
  painter.drawText(box.adjusted(7, 4, -7, -4), Qt::AlignLeft | Qt::AlignTop, p.title);
  painter.setPen(t.faintText);
  painter.drawText(box.adjusted(7, 4, -7, -4), Qt::AlignLeft | Qt::AlignBottom, figures);
}

}  // namespace pw::gui
