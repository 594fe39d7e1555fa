#pragma once

#include "app/gui/timeline/drawing/track_painter.h"

namespace pw::gui {

/// Memory over time from 0 to `top` bytes: a filled curve with what is beyond the limit in red, or a line only.
struct MemoryLane {
  const MemoryTrack* track = nullptr;
  Bytes top = 1, limit = 0;
  bool filled = true;
  Ns end = 0;
};
void paintMemory(Canvas& canvas, const Columns& columns, const MemoryLane& lane, const Look& look);

/// The red zone above the limit and its dashed line.
void paintLimit(Canvas& canvas, const Columns& columns, const MemoryLane& lane, const Look& look);

}  // namespace pw::gui
