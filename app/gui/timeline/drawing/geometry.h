#pragma once

#include <QPoint>
#include <QRect>
#include <QRectF>
#include <optional>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// Where on the canvas things are, and what is at a point of it [pixels]. Refers to a scene and its layout; made anew for each question.
struct Geometry {
  const Scene& scene;
  const RowLayout& layout;
  Viewport view;
  int scroll = 0;  ///< how far down; pinned rows stay
  QRect area;      ///< of ruler, labels and rows

  [[nodiscard]] QRect tracks() const;  ///< the rows without their labels
  [[nodiscard]] int topOf(const Row& row) const;
  [[nodiscard]] Ns timeAt(int x) const { return view.timeOf(x - tracks().left()); }
  /// The rank that a point at this height belongs to; nothing in the ruler, between ranks and below them.
  [[nodiscard]] std::optional<Rank> rankAt(int y) const;
  [[nodiscard]] Hit hitAt(const QPoint& at) const;
  /// The rectangle of a time on a rank's predicted compute row, a pixel wide at least; nothing where it is not in sight. What reaches far
  /// beyond the sides is cut off there.
  [[nodiscard]] std::optional<QRectF> rectOf(Rank rank, Ns from, Ns to) const;
};

}  // namespace pw::gui
