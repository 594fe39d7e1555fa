#pragma once

#include <QPointF>
#include <functional>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/geometry.h"

class QColor;
class QPainter;

namespace pw::gui {

// What is painted over the predicted rows while a schedule is edited by hand.

/// With the painter's pen: a rectangle around each block in sight, of those of the timeline that `draws` picks, that is wide enough for
/// one. At most a few thousand.
void paintOutlines(QPainter& painter, const Geometry& where, const Timeline& of, const std::function<bool(const SpanRef&)>& draws);
/// The blocks as they were before a drag, and where the step ended.
void paintGhost(QPainter& painter, const Geometry& where, const Timeline& before, const Theme& theme);
/// The part of a rank's row within which all places are legal.
void paintRoom(QPainter& painter, const Geometry& where, Rank rank, const std::pair<Ns, Ns>& room, const Theme& theme);
/// The rank that a stage would move to; dashed where it may not.
void paintGoal(QPainter& painter, const Geometry& where, Rank rank, bool isLegal, const Theme& theme);
/// A mark between two blocks, where the dragged would go; dashed where it may not.
void paintDrop(QPainter& painter, const Geometry& where, Rank rank, Ns at, bool isLegal, const Theme& theme);
/// A ring of arrows between points: each leads from what waits to what it waits for.
void paintCycle(QPainter& painter, const std::vector<QPointF>& centres, const QColor& colour);

}  // namespace pw::gui
