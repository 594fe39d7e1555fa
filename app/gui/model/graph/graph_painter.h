#pragma once

#include <QFont>
#include <QRectF>
#include <QString>
#include <vector>

#include "app/gui/model/graph/graph_layout.h"
#include "app/gui/model/parts/row_findings.h"
#include "app/gui/model/parts/split_drag.h"

class QPainter;

namespace pw::gui {

/// Where things stand from left to right, in pixels.
struct GraphColumns {
  double left = 12, right = 300;  ///< of boxes without frames around
  double spine = 200;             ///< of arrows to the next box
  double lanes = 314, laneStep = 8;
  double labels = 330;  ///< sizes of branches begin here
  double width = 400;   ///< all of it

  [[nodiscard]] double laneX(int lane) const { return lanes + lane * laneStep; }
  [[nodiscard]] QRectF around(const GraphBox& box) const;
  [[nodiscard]] QRectF around(const GraphFrame& frame) const;
};
/// As wide as the view, but not narrower than can be read, and boxes not wider.
[[nodiscard]] GraphColumns columnsFor(double viewWidth, int lanes, double labelWidth);

/// All that is painted; the view's own state is `current` and so on.
struct GraphScene {
  const CallTree& tree;
  const RowFindings& findings;
  const GraphLayout& layout;
  const GraphMetrics& metrics;
  GraphColumns columns;
  std::vector<NodeId> begins;
  std::vector<QString> cuts;  ///< what stands at the begin of each stage, the first included
  std::vector<NodeId> legal;  ///< where a stage may begin; shown during a drag
  std::optional<DropMark> mark;
  int current = GraphBox::kInputs;  ///< row
  int hovered = -1;                 ///< branch
  bool hasFocus = false;
  QFont font;
};

/// Paints what lies between two heights of the layout. Cost: what is seen, and a look at every frame and branch.
void paintGraph(QPainter& painter, const GraphScene& scene, double top, double bottom);

/// Where the words of a stage's beginning stand.
[[nodiscard]] QRectF cutLabel(const GraphScene& scene, std::size_t stage);

/// The branch within some pixels of a point of the layout; −1: none.
[[nodiscard]] int branchAt(const GraphLayout& layout, const GraphColumns& columns, const QPointF& point);

}  // namespace pw::gui
