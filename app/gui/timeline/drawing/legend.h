#pragma once

#include <QRect>

#include "app/gui/timeline/drawing/scene.h"

class QPainter;

namespace pw::gui {

/// A legend of the kinds, or of what the colours mean, one line high.
void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme);

}  // namespace pw::gui
