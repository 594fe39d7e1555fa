#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// A horizontal strip.
struct Row {
  enum class Kind : std::uint8_t { Compute, Communication, Memory } kind = Kind::Compute;
  Source source = Source::Predicted;  ///< of an `Over` row: Measured, with predicted outlines
  Rank rank;
  int top = 0, height = 0;  ///< pixels from the first row's top (pinned rows: from the top of the view)
  bool pinned = false;
};

/// The rows of a scene from top to bottom, pinned ranks first, and their height together.
struct RowLayout {
  std::vector<Row> rows;
  int pinnedHeight = 0;  ///< of the pinned ranks' rows
  int height = 0;        ///< of all
};
/// A rank is `rowScale` times as high as usual, but a compute row at least `kLeastRow` pixels with the gap below it. Of low ranks the
/// memory, and of lower ones the messages too, are left out where they would be unreadable; what is left takes their room.
[[nodiscard]] RowLayout layOutRows(const Scene& scene);
inline constexpr int kLeastRow = 8;
inline constexpr double kMostRowScale = 3;
/// The `rowScale` below which no rank becomes lower; at most 1.
[[nodiscard]] double leastRowScale(const Scene& scene);
/// The largest `rowScale` with which all rows have room in so many pixels; where none is, `leastRowScale`. Cost: some layouts.
[[nodiscard]] double fittedRowScale(const Scene& scene, int height);

/// A place within a rank's rows, wherever they are and however high: 0 is their top, 1 the top of the rank below.
struct RankPlace {
  Rank rank;
  double share = 0;
};
/// What lies `line` pixels from the first row's top; above or below all ranks the nearest one that is not pinned. Nothing where all are.
[[nodiscard]] std::optional<RankPlace> rankPlaceAt(const RowLayout& layout, int line);
/// Where that is in a layout; 0 where the rank is not.
[[nodiscard]] int lineOf(const RowLayout& layout, const RankPlace& place);

/// The place in `layout.rows` that shows a span, its rank's compute row where its own is hidden; nothing where the rank is not shown.
[[nodiscard]] std::optional<std::size_t> rowOf(const RowLayout& layout, const SourcedSpan& span);

/// Height of the ruler with the lane of notes below it, of that lane alone, and width of the labels for this scene and the application's
/// font [pixels].
[[nodiscard]] int rulerHeight(const Scene& scene);
[[nodiscard]] int noteLaneHeight(const Scene& scene);  ///< 0: there are no notes
[[nodiscard]] int labelWidth(const Scene& scene);
[[nodiscard]] int groupWidth(const Scene& scene);  ///< the part of it for groups; 0: there are none

/// What lies under a pixel of the drawing area (right of the labels, below the ruler), `scroll` pixels scrolled down.
struct Hit {
  std::optional<Row> row;
  std::optional<SourcedSpan> span;
  std::optional<std::pair<Ns, Ns>> bubble;  ///< of a compute row without a span
  Ns time = 0;
};
[[nodiscard]] Hit hitTest(const Scene& scene, const RowLayout& layout, const Viewport& view, int x, int y, int scroll);

}  // namespace pw::gui
