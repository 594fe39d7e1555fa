#pragma once

#include <QRect>

#include "app/gui/timeline/drawing/scene.h"

class QPainter;

namespace pw::gui {

/// How high a legend of this width is: as many lines as its entries take, up to three [pixels]; 0: nothing is shown. Linear in ranks.
[[nodiscard]] int legendHeight(const Scene& scene, int width);
/// A legend of the kinds, or of what the colours mean, in as many lines as the area has room for; what has none is an ellipsis.
void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme);

}  // namespace pw::gui
