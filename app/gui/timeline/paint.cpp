#include <QEvent>
#include <QPainter>
#include <QStyle>
#include <algorithm>
#include <cmath>
#include <utility>

#include "app/gui/timeline/drawing/legend.h"
#include "app/gui/timeline/drawing/overlays.h"
#include "app/gui/timeline/drawing/scene_painter.h"
#include "app/gui/timeline/private.h"

namespace pw::gui {
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
  const QIcon icon = document.problem().isEmpty() ? QIcon() : w.style()->standardIcon(QStyle::SP_MessageBoxWarning);
  {
    QPainter p(canvas);
    if (isEmpty()) {
      p.fillRect(canvas->rect(), theme.background);
      paintNothing(p, canvas->rect(), document.problem(), document.isPredicting(), icon, theme);
    } else {
      painter.paint(p, sceneArea(), scene, layout, view, scroll, theme);
      const QRect legend(0, canvas->height() - legendHeight(), canvas->width(), legendHeight());
      p.fillRect(legend, theme.alternate);
      paintLegend(p, legend, scene, theme);
      paintOverlays(p, icon, theme);
    }
    progress.paint(p, theme);
  }
  canvas->notePainted();
  if (!std::exchange(paintedNewest, true)) emit w.timelinePainted();
}

void TimelineWidget::Private::paintOverlays(QPainter& p, const QIcon& icon, const Theme& theme) {
  p.setRenderHint(QPainter::Antialiasing, false);
  const Geometry where = geometry();
  if (const Timeline* t = gap ? timeline(gap->source) : nullptr) {
    const auto [from, to] = gapOf(*t, *gap);
    paintFrame(p, where, {gap->source, {gap->rank, TrackKind::Compute, 0}}, from, to, theme);
  }
  paintEditing(p, theme);
  if (!document.problem().isEmpty())
    paintProblem(p, sceneArea(), document.problem(), icon, theme);
  else if (mouse)
    paintCursor(p, where, *mouse, timeText(timeAt(mouse->x()), view.nsPerPixel), theme);
  if (!canvas->hasFocus()) return;
  p.setPen(QPen(theme.focus, 1));
  p.setBrush(Qt::NoBrush);
  p.drawRect(canvas->rect().adjusted(0, 0, -1, -1));
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
