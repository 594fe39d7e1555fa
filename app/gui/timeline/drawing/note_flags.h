#pragma once

#include <cstddef>
#include <optional>

#include "app/gui/timeline/drawing/geometry.h"

class QPainter;

namespace pw::gui {

/// The lane of notes between ruler and rows: a flag and the beginning of its text for each, and a line down to its block, or through all
/// rows. `tracks`: of the rows, right of their labels; the lane ends where they begin.
void paintNotes(QPainter& painter, const QRect& tracks, const Scene& scene, const RowLayout& layout, const Viewport& view, int scroll,
                const Theme& theme);
/// The number of the note whose flag or text is at a point; where they overlap the later one.
[[nodiscard]] std::optional<std::size_t> noteAt(const Geometry& where, const QPoint& at);

}  // namespace pw::gui
