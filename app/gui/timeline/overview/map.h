#pragma once

#include <QRect>

#include "app/gui/timeline/drawing/geometry.h"

namespace pw::gui {

/// Where in a small picture of all ranks over all time things are [pixels], and what of it the timeline shows.
struct OverviewMap {
  QRect area;       ///< of the picture
  Ns end = 1;       ///< at its right edge; 0 at its left one
  int lines = 1;    ///< of the layout, from top to bottom
  int pinned = 0;   ///< of these always in view
  int visible = 1;  ///< lines that the timeline shows
  int scroll = 0;   ///< which of them is first
  double from = 0, to = 1;

  enum class Part : std::uint8_t { Outside, Window, LeftEdge, RightEdge };

  /// What the timeline shows, at least so large that it can be seen.
  [[nodiscard]] QRect window() const;
  [[nodiscard]] double timeAt(double x) const;
  [[nodiscard]] int scrollAt(double y) const;  ///< with which the timeline's rows begin at y
  [[nodiscard]] Part partAt(const QPoint& at) const;
  [[nodiscard]] bool isAllVisible() const;

  /// The range of time of the same length from `start` on, moved as little as needed to lie within [0, end]; of a longer one the middle.
  [[nodiscard]] std::pair<double, double> movedTo(double start) const;
  /// The range with its left or right edge at x, at least a pixel of the picture long.
  [[nodiscard]] std::pair<double, double> withEdgeAt(Part edge, double x) const;
  /// The range zoomed around x by a factor (< 1: closer), no longer than all.
  [[nodiscard]] std::pair<double, double> zoomedAt(double x, double factor) const;
};

/// `area`: where the picture is.
[[nodiscard]] OverviewMap overviewOf(const Geometry& timeline, const QRect& area);

}  // namespace pw::gui
