#pragma once

#include "simulator/timeline/figure.h"

class QPainter;

namespace pw::gui {

/// Paints a figure with its upper left corner at the painter's origin; `scale`: of a mm, in the painter's units. Text is text where the
/// device can show it (PDF). On white, whatever the theme.
void paintFigure(QPainter& painter, const Figure& figure, double scale);

}  // namespace pw::gui
