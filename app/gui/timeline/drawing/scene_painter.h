#pragma once

#include <QRect>
#include <memory>

#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"

class QPainter;

namespace pw::gui {

/// Paints ruler, labels and rows into `area`. Blocks narrower than a pixel are merged: a pixel column shows the kinds' shares as a
/// stack, with a base line darkened from the kind that fills most of it. Cost: of what is visible, and log n for each merged pixel column;
/// not of the number of spans. Keeps the row images of the last call and paints only what is new where the view was moved by whole pixels.
class ScenePainter {
 public:
  void paint(QPainter& painter, const QRect& area, const Scene& scene, const RowLayout& layout, const Viewport& view, int scroll,
             const Theme& theme);
  void forget();  ///< timelines changed in place or the theme did

 private:
  struct Cache;
  std::shared_ptr<Cache> cache_;
};

}  // namespace pw::gui
