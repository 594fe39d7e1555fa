#pragma once

#include <QString>
#include <vector>

#include "app/gui/timeline/drawing/geometry.h"

class QPainter;

namespace pw::gui {

/// Something that goes from one action to another.
struct FlowArrow {
  SourcedSpan from, to;
  Ns left = 0, arrives = 0;  ///< when the one ends, and the other starts
  bool isIncoming = false;   ///< else it leaves the block that the arrows are of
  QString otherEnd;          ///< what the block at the other end is called; written where that is out of sight
};

/// Arrows from the end of a block to the start of another, over the rows; legible on blocks of any colour. Where the other end lies above,
/// below or beside what is shown, the arrow goes to that side and says what is there.
void paintFlows(QPainter& painter, const Geometry& where, const std::vector<FlowArrow>& arrows, const Theme& theme);

}  // namespace pw::gui
