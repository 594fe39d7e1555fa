#include "app/gui/timeline/drawing/overlays.h"

#include <QPainter>
#include <algorithm>

#include "app/gui/common/format.h"
#include "app/gui/timeline/drawing/look.h"

namespace pw::gui {
namespace {

/// Text in the middle of an area, wrapped at a comfortable width, with a heading above it.
void paintSentence(QPainter& painter, const QRect& area, const QString& heading, const QString& text, const QColor& strong,
                   const QColor& faint, const QIcon& icon) {
  const int width = std::min(area.width() - 32, painter.fontMetrics().averageCharWidth() * 70);
  if (width <= 0) return;
  QFont large = painter.font();
  large.setPointSizeF(large.pointSizeF() * 1.25);
  large.setWeight(QFont::DemiBold);
  const int flags = Qt::AlignHCenter | Qt::TextWordWrap;
  const QRect top = QFontMetrics(large).boundingRect(QRect(0, 0, width, 10'000), flags, heading);
  const QRect below = painter.fontMetrics().boundingRect(QRect(0, 0, width, 10'000), flags, text);
  const int side = icon.isNull() ? 0 : 2 * painter.fontMetrics().height();
  const int gap = painter.fontMetrics().height() / 2;
  int y = area.center().y() - (side + top.height() + below.height() + 2 * gap) / 2;
  const int x = area.center().x() - width / 2;
  if (side > 0) icon.paint(&painter, QRect(area.center().x() - side / 2, y, side, side));
  y += side + (side > 0 ? gap : 0);
  painter.save();
  painter.setFont(large);
  painter.setPen(strong);
  painter.drawText(QRect(x, y, width, top.height()), flags, heading);
  painter.restore();
  painter.setPen(faint);
  painter.drawText(QRect(x, y + top.height() + gap, width, below.height()), flags, text);
}

}  // namespace

void paintFrame(QPainter& p, const Geometry& where, const SourcedSpan& span, Ns from, Ns to, const Theme& theme) {
  constexpr double kBeyond = 4;
  const auto at = rowOf(where.layout, span);
  if (!at) return;
  const Row& row = where.layout.rows[*at];
  const QRect area = where.tracks();
  const auto xOf = [&](Ns time) { return std::clamp(where.view.xOf(time), -kBeyond, where.view.width + kBeyond); };
  const double left = xOf(from), right = xOf(to);
  p.save();
  p.setClipRect(row.pinned ? area : area.adjusted(0, where.layout.pinnedHeight, 0, 0));
  p.setPen(QPen(theme.focus, 2));
  p.setBrush(Qt::NoBrush);
  p.drawRect(QRectF(area.left() + left, where.topOf(row), std::max(2.0, right - left), row.height));
  p.restore();
}

void paintCursor(QPainter& p, const Geometry& where, const QPoint& mouse, const QString& time, const Theme& theme) {
  const QRect area = where.tracks();
  if (mouse.x() < area.left() || mouse.x() > area.right() || !where.area.contains(mouse)) return;
  QColor line = theme.accent;
  line.setAlpha(150);
  p.setPen(QPen(line, 1));
  p.drawLine(mouse.x(), area.top(), mouse.x(), area.bottom());
  const QFontMetrics metrics(p.font());
  const int ruler = area.top() - noteLaneHeight(where.scene);  // where it ends
  const int width = metrics.horizontalAdvance(time) + 10, height = std::min(ruler - 4, metrics.height() + 2);
  const int left = std::clamp(mouse.x() - width / 2, area.left(), std::max(area.left(), area.right() - width));
  const QRect label(left, ruler - height - 2, width, height);
  p.save();
  p.setRenderHint(QPainter::Antialiasing);
  p.setPen(Qt::NoPen);
  p.setBrush(theme.accent);
  p.drawRoundedRect(label, 3, 3);
  p.setPen(textOn(theme.accent));
  p.drawText(label, Qt::AlignCenter, time);
  p.restore();
}

void paintProblem(QPainter& p, const QRect& area, const QString& problem, const QIcon& icon, const Theme& theme) {
  QColor veil = theme.background;
  veil.setAlpha(190);
  p.fillRect(area, veil);
  const int pad = p.fontMetrics().height() / 2, side = p.fontMetrics().height();
  const int width = std::min(area.width() - 24, p.fontMetrics().averageCharWidth() * 90);
  if (width < 5 * side) return;
  const QString text = capitalised(problem);
  const int room = width - side - 3 * pad;
  const QRect words = p.fontMetrics().boundingRect(QRect(0, 0, room, 10'000), Qt::TextWordWrap, text);
  const int used = std::min(width, words.width() + side + 3 * pad + 2);
  const QRect box(area.center().x() - used / 2, area.top() + area.height() / 3, used, std::max(words.height(), side) + 2 * pad);
  p.save();
  p.setRenderHint(QPainter::Antialiasing);
  p.setPen(QPen(theme.error, 1.5));
  p.setBrush(theme.background);
  p.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5);
  icon.paint(&p, QRect(box.left() + pad, box.top() + pad, side, side));
  p.setPen(theme.text);
  p.drawText(QRect(box.left() + 2 * pad + side, box.top() + pad, used - side - 3 * pad, words.height() + 2), Qt::TextWordWrap, text);
  p.restore();
}

void paintNothing(QPainter& p, const QRect& area, const QString& problem, bool isPredicting, const QIcon& icon, const Theme& theme) {
  if (!problem.isEmpty())
    return paintSentence(p, area, translated("This plan cannot be predicted"), capitalised(problem), theme.error, theme.text, icon);
  if (isPredicting) return paintSentence(p, area, translated("Predicting…"), {}, theme.text, theme.faintText, {});
  paintSentence(p, area, translated("No timeline yet"),
                translated("Open a model, a plan or a schedule to see what each rank will do, or a trace to see what ranks did."),
                theme.text, theme.faintText, {});
}

}  // namespace pw::gui
