#pragma once

#include <QSize>

#include "app/gui/timeline/drawing/geometry.h"

class QPainter;

namespace pw::gui {

/// The size of a picture that shows all rows of what is on the canvas, with a legend, as wide as the canvas but not narrow.
[[nodiscard]] QSize pictureSize(const Geometry& of);
/// The time that the canvas shows as a picture of this size, without the mouse. Rows that are scrolled out of view are in it where there is
/// room for them.
void paintPicture(QPainter& painter, const QSize& size, const Geometry& of, const Theme& theme);

}  // namespace pw::gui
