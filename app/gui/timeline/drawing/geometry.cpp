#include "app/gui/timeline/drawing/geometry.h"

#include <algorithm>

namespace pw::gui {

QRect Geometry::tracks() const { return area.adjusted(labelWidth(scene), rulerHeight(scene), 0, 0); }

int Geometry::topOf(const Row& row) const { return tracks().top() + (row.pinned ? row.top : row.top - scroll); }

std::optional<Rank> Geometry::rankAt(int y) const {
  const int below = y - tracks().top();
  if (below < 0 || y >= tracks().bottom()) return std::nullopt;
  for (const Row& row : layout.rows) {
    const int top = row.pinned ? row.top : row.top - scroll;
    if (!row.pinned && below < layout.pinnedHeight) continue;
    if (below >= top && below < top + row.height) return row.rank;
  }
  return std::nullopt;
}

Hit Geometry::hitAt(const QPoint& at) const {
  const QPoint inside = at - tracks().topLeft();
  return hitTest(scene, layout, view, inside.x(), inside.y(), scroll);
}

std::optional<QRectF> Geometry::rectOf(Rank rank, Ns from, Ns to) const {
  constexpr double kBeyond = 8;
  const auto at = rowOf(layout, {Source::Predicted, {rank, TrackKind::Compute, 0}});
  if (!at) return std::nullopt;
  const Row& row = layout.rows[*at];
  const QRect inner = tracks();
  const double top = topOf(row);
  const auto xOf = [&](Ns time) { return std::clamp(view.xOf(time), -kBeyond, view.width + kBeyond); };
  const double left = xOf(from), right = xOf(to);
  if (right < 0 || left > view.width || top + row.height < inner.top() || top > inner.bottom()) return std::nullopt;
  return QRectF(inner.left() + left, top, std::max(1.0, right - left), row.height);
}

}  // namespace pw::gui
