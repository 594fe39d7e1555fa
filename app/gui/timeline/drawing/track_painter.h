#pragma once

#include <span>
#include <vector>

#include "app/gui/timeline/drawing/look.h"

namespace pw::gui {

/// One track and what is special about some of its spans.
struct TrackView {
  const SpanTrack* track = nullptr;
  std::span<const SourcedSpan> highlighted;  ///< of this track, by index
  bool dims = false;                         ///< others are faint
  bool withStage = false;                    ///< labels name the stage
  // Differences: the predicted track and, by index of a measured span, the matching one in it.
  const SpanTrack* predicted = nullptr;
  const std::vector<std::int32_t>* predictedOf = nullptr;

  [[nodiscard]] bool isHighlighted(std::size_t first, std::size_t last) const;  ///< any of [first, last)
};

/// For labels of blocks, and for those of blocks where that is too large.
struct LabelGlyphs {
  Glyphs usual, small;
};

/// Blocks wider than this have their label in the middle of what is seen of them, so it is painted apart (`paintWideLabels`).
inline constexpr int kWidestLabelled = 240;

/// Paints columns [canvas.left(), canvas.right()) of a compute row. Spans a column wide or wider are blocks between the edges nearest to
/// their times; a column that narrower ones start in is a stack of the kinds' shares with a dark base line. What is open in [0, end) is
/// bubble.
void paintCompute(Canvas& canvas, const Columns& columns, const TrackView& view, Ns end, const Look& look, const LabelGlyphs& glyphs);

/// Outlines of predicted spans over measured ones.
void paintOutlines(Canvas& canvas, const Columns& columns, const SpanTrack& predicted, const Look& look);

/// Messages and reductions, each kind in its lane; later ones over earlier ones.
void paintMessages(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look);

/// Whether any block that is seen is so wide.
[[nodiscard]] bool hasWideBlocks(const Columns& columns, const SpanTrack& track);
/// Their labels; over the whole image, which is a copy.
void paintWideLabels(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look, const Glyphs& glyphs);

}  // namespace pw::gui
