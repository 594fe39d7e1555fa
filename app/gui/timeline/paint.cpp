#include <QEvent>
#include <QPainter>
#include <QPainterPath>
#include <QStyle>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/timeline/drawing/legend.h"
#include "app/gui/timeline/drawing/scene_painter.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {
namespace {

/// Errors that follow a command's name begin in lower case; shown alone they are capitalised.
QString sentence(QString text) {
  if (!text.isEmpty()) text[0] = text[0].toUpper();
  return text;
}

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

void TimelineWidget::changeEvent(QEvent* event) {
  QWidget::changeEvent(event);
  if (!d || d->canvas == nullptr) return;
  switch (static_cast<int>(event->type())) {
    case QEvent::PaletteChange:
    case QEvent::StyleChange:
    case QEvent::FontChange:
    case QEvent::ApplicationFontChange:
      d->painter.forget();
      d->resized();
      d->repaint();
      break;
    default: break;
  }
}

void TimelineWidget::Private::paint() {
  const Theme& theme = currentTheme();
  {
    QPainter p(canvas);
    if (isEmpty()) {
      p.fillRect(canvas->rect(), theme.background);
      paintEmpty(p, theme);
    } else {
      painter.paint(p, sceneArea(), scene, layout, view, scroll, theme);
      const QRect legend(0, canvas->height() - legendHeight(), canvas->width(), legendHeight());
      p.fillRect(legend, theme.alternate);
      paintLegend(p, legend, scene, theme);
      paintOverlays(p, theme);
    }
    paintProgress(p, theme);
  }
  sinceFrame.start();
  frame.stop();
  if (!std::exchange(paintedNewest, true)) emit w.timelinePainted();
}

void TimelineWidget::Private::paintOverlays(QPainter& p, const Theme& theme) {
  p.setRenderHint(QPainter::Antialiasing, false);
  if (gap) paintGap(p, theme);
  paintEditing(p, theme);
  if (!document.problem().isEmpty())
    paintProblem(p, theme);
  else if (mouse)
    paintCursor(p, theme);
  if (!canvas->hasFocus()) return;
  p.setPen(QPen(theme.focus, 1));
  p.setBrush(Qt::NoBrush);
  p.drawRect(canvas->rect().adjusted(0, 0, -1, -1));
}

/// A frame around the selected bubble.
void TimelineWidget::Private::paintGap(QPainter& p, const Theme& theme) {
  const auto at = rowOf(layout, {gap->source, {gap->rank, TrackKind::Compute, 0}});
  const Timeline* t = timeline(gap->source);
  if (!at || t == nullptr) return;
  const Row& row = layout.rows[*at];
  const QRect area = trackArea();
  const auto [from, to] = gapOf(*t, *gap);
  const double left = std::clamp(view.xOf(from), -4.0, view.width + 4.0), right = std::clamp(view.xOf(to), -4.0, view.width + 4.0);
  const int top = row.pinned ? row.top : row.top - scroll;
  p.save();
  p.setClipRect(row.pinned ? area : area.adjusted(0, layout.pinnedHeight, 0, 0));
  p.setPen(QPen(theme.focus, 2));
  p.setBrush(Qt::NoBrush);
  p.drawRect(QRectF(area.left() + left, area.top() + top, std::max(2.0, right - left), row.height));
  p.restore();
}

/// A line through the rows at the mouse, and its time in the ruler.
void TimelineWidget::Private::paintCursor(QPainter& p, const Theme& theme) {
  const QRect area = trackArea();
  if (mouse->x() < area.left() || mouse->x() > area.right() || !sceneArea().contains(*mouse)) return;
  QColor line = theme.accent;
  line.setAlpha(150);
  p.setPen(QPen(line, 1));
  p.drawLine(mouse->x(), area.top(), mouse->x(), area.bottom());
  const QString text = timeText(timeAt(mouse->x()), view.nsPerPixel);
  const QFontMetrics metrics(p.font());
  const int width = metrics.horizontalAdvance(text) + 10, height = std::min(area.top() - 4, metrics.height() + 2);
  const int left = std::clamp(mouse->x() - width / 2, area.left(), std::max(area.left(), area.right() - width));
  const QRect label(left, area.top() - height - 2, width, height);
  p.save();
  p.setRenderHint(QPainter::Antialiasing);
  p.setPen(Qt::NoPen);
  p.setBrush(theme.accent);
  p.drawRoundedRect(label, 3, 3);
  p.setPen(textOn(theme.accent));
  p.drawText(label, Qt::AlignCenter, text);
  p.restore();
}

/// The previous timeline, greyed out, and why there is no new one.
void TimelineWidget::Private::paintProblem(QPainter& p, const Theme& theme) {
  QColor veil = theme.background;
  veil.setAlpha(190);
  p.fillRect(sceneArea(), veil);
  const QRect area = sceneArea();
  const int pad = p.fontMetrics().height() / 2, side = p.fontMetrics().height();
  const int width = std::min(area.width() - 24, p.fontMetrics().averageCharWidth() * 90);
  if (width < 5 * side) return;
  const QString text = sentence(document.problem());
  const int room = width - side - 3 * pad;
  const QRect words = p.fontMetrics().boundingRect(QRect(0, 0, room, 10'000), Qt::TextWordWrap, text);
  const int used = std::min(width, words.width() + side + 3 * pad + 2);
  const QRect box(area.center().x() - used / 2, area.top() + area.height() / 3, used, std::max(words.height(), side) + 2 * pad);
  p.save();
  p.setRenderHint(QPainter::Antialiasing);
  p.setPen(QPen(theme.error, 1.5));
  p.setBrush(theme.background);
  p.drawRoundedRect(QRectF(box).adjusted(0.5, 0.5, -0.5, -0.5), 5, 5);
  w.style()->standardIcon(QStyle::SP_MessageBoxWarning).paint(&p, QRect(box.left() + pad, box.top() + pad, side, side));
  p.setPen(theme.text);
  p.drawText(QRect(box.left() + 2 * pad + side, box.top() + pad, used - side - 3 * pad, words.height() + 2), Qt::TextWordWrap, text);
  p.restore();
}

void TimelineWidget::Private::paintEmpty(QPainter& p, const Theme& theme) {
  const QString problem = sentence(document.problem());
  if (!problem.isEmpty()) {
    const QIcon icon = w.style()->standardIcon(QStyle::SP_MessageBoxWarning);
    return paintSentence(p, canvas->rect(), tr("This plan cannot be predicted"), problem, theme.error, theme.text, icon);
  }
  if (document.isPredicting()) return paintSentence(p, canvas->rect(), tr("Predicting…"), {}, theme.text, theme.faintText, {});
  paintSentence(p, canvas->rect(), tr("No timeline yet"),
                tr("Open a model, a plan or a schedule to see what each rank will do, or a trace to see what ranks did."), theme.text,
                theme.faintText, {});
}

/// A thin line that runs along the top while a prediction takes its time.
void TimelineWidget::Private::paintProgress(QPainter& p, const Theme& theme) {
  if (!isLate) return;
  constexpr int kHeight = 3, kPeriodMs = 1400;
  const double phase = static_cast<double>(sinceRequest.elapsed() % kPeriodMs) / kPeriodMs;
  const double length = 0.3 * canvas->width();
  p.fillRect(0, 0, canvas->width(), kHeight, theme.grid);
  p.fillRect(QRectF(phase * (canvas->width() + length) - length, 0, length, kHeight), theme.accent);
}

// ---- Pictures ------------------------------------------------------------------------------------------------------

QSize TimelineWidget::pictureSize() const {
  return {std::max(640, d->canvas->width()), rulerHeight(d->scene) + d->layout.height + d->legendHeight()};
}

void TimelineWidget::render(QPainter& p, const QSize& size, const Theme& theme) const {
  p.fillRect(QRect(QPoint(), size), theme.background);
  if (d->isEmpty()) return;
  Scene scene = d->scene;
  scene.hovered.reset();
  const int legend = d->legendHeight();
  const QRect area(0, 0, size.width(), size.height() - legend);
  Viewport view = d->view;
  view.width = std::max(1, area.width() - labelWidth(scene));
  view.nsPerPixel = (d->view.end() - d->view.start) / view.width;
  // Rows that are scrolled out of view are drawn if there is room for them.
  const int room = area.height() - rulerHeight(scene);
  const int scroll = std::clamp(d->scroll, 0, std::max(0, d->layout.height - room));
  ScenePainter().paint(p, area, scene, d->layout, view, scroll, theme);
  paintLegend(p, QRect(0, size.height() - legend, size.width(), legend), scene, theme);
}

}  // namespace pw::gui
