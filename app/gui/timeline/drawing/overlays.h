#pragma once

#include <QIcon>
#include <QPoint>
#include <QRect>
#include <QString>

#include "app/gui/timeline/drawing/geometry.h"

class QPainter;

namespace pw::gui {

// What is painted over the rows, or instead of them.

/// A frame around a time of a compute row: the selected bubble.
void paintFrame(QPainter& painter, const Geometry& where, const SourcedSpan& row, Ns from, Ns to, const Theme& theme);
/// A line through the rows at the mouse, and `time` in the ruler; nothing where the mouse is beside them.
void paintCursor(QPainter& painter, const Geometry& where, const QPoint& mouse, const QString& time, const Theme& theme);
/// The previous timeline, greyed out, and why there is no new one.
void paintProblem(QPainter& painter, const QRect& area, const QString& problem, const QIcon& icon, const Theme& theme);
/// Without a timeline: why there is none, or what would bring one.
void paintNothing(QPainter& painter, const QRect& area, const QString& problem, bool isPredicting, const QIcon& icon, const Theme& theme);

}  // namespace pw::gui
