#pragma once

#include <QColor>
#include <QRect>
#include <optional>
#include <utility>

#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"

class QPainter;

namespace pw::gui {

struct Theme;

/// A scene's rows, and where they are painted.
struct PaintedRows {
  QRect tracks;
  const Scene& scene;
  const RowLayout& layout;
  const Viewport& view;
  int scroll = 0;
};

/// The same action in the other timeline; nothing where it has none, or there is no other.
[[nodiscard]] std::optional<SourcedSpan> matchOf(const SourcedSpan& span, const Matches& matches);

/// Outlines a block, such as the hovered or selected one, so many pixels thick.
void paintOutline(QPainter& painter, const PaintedRows& rows, const SourcedSpan& marked, const QColor& colour, int thickness);

/// Tints the chosen times in all rows.
void paintRange(QPainter& painter, const PaintedRows& rows, const std::pair<Ns, Ns>& range, const Theme& theme);

}  // namespace pw::gui
