#pragma once

#include <QRect>

#include "app/gui/timeline/drawing/scene.h"

class QPainter;

namespace pw::gui {

/// A legend of kinds (or what colours mean), a line high.
void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme);

}  // namespace pw::gui
