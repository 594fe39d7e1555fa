#include "app/gui/timeline/drawing/picture.h"

#include <QPainter>
#include <algorithm>

#include "app/gui/timeline/drawing/legend.h"
#include "app/gui/timeline/drawing/scene_painter.h"

namespace pw::gui {

QSize pictureSize(const Geometry& of) {
  constexpr int kNarrowest = 640;
  const int width = std::max(kNarrowest, of.area.width());
  return {width, rulerHeight(of.scene) + of.layout.height + legendHeight(of.scene, width)};
}

void paintPicture(QPainter& p, const QSize& size, const Geometry& of, const Theme& theme) {
  p.fillRect(QRect(QPoint(), size), theme.background);
  if (isEmpty(of.scene)) return;
  Scene scene = of.scene;
  scene.hovered.reset();
  const int legend = legendHeight(scene, size.width());
  const QRect area(0, 0, size.width(), size.height() - legend);
  Viewport view = of.view;
  view.width = std::max(1, area.width() - labelWidth(scene));
  view.nsPerPixel = (of.view.end() - of.view.start) / view.width;
  const int room = area.height() - rulerHeight(scene);
  const int scroll = std::clamp(of.scroll, 0, std::max(0, of.layout.height - room));
  ScenePainter().paint(p, area, scene, of.layout, view, scroll, theme);
  paintLegend(p, QRect(0, size.height() - legend, size.width(), legend), scene, theme);
}

}  // namespace pw::gui
