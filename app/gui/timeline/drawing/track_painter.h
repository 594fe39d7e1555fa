#pragma once

#include <array>
#include <span>
#include <string>
#include <vector>

#include "app/gui/timeline/drawing/look.h"

namespace pw::gui {

/// Of the blocks of a track, by kind: whether all have room for their labels, so that of like blocks all have one or none.
struct BlockSizes {
  std::array<Ns, kSpanKinds> least{};             ///< nine of ten take at least so long
  std::array<std::string, kSpanKinds> longest{};  ///< label
};
/// Cost: linear in the spans.
[[nodiscard]] BlockSizes blockSizesOf(const SpanTrack& track, bool withStage);

/// One track and what is special about some of its spans.
struct TrackView {
  const SpanTrack* track = nullptr;
  std::span<const SourcedSpan> highlighted;  ///< of this track, by index
  bool dims = false;                         ///< others are faint
  bool withStage = false;                    ///< labels name the stage
  const BlockSizes* sizes = nullptr;         ///< null: each block has a label that has room for it
  // Differences: the predicted track and, by index of a measured span, the matching one in it.
  const SpanTrack* predicted = nullptr;
  const std::vector<std::int32_t>* predictedOf = nullptr;
  bool comparesTimes = true;  ///< as the scene

  [[nodiscard]] bool isHighlighted(std::size_t first, std::size_t last) const;  ///< any of [first, last)
};

/// Glyphs for the labels of blocks, and smaller ones where those are too large.
struct LabelGlyphs {
  Glyphs usual, small;
};

/// The label of a block wider than this is centred in the block's visible part, so it is painted separately (`paintWideLabels`).
inline constexpr int kWidestLabelled = 240;

/// Paints columns [canvas.left(), canvas.right()) of a compute row. Spans at least a column wide are blocks between the edges nearest to
/// their times; a column in which narrower ones start is a stack of the kinds' shares with a dark base line. Gaps in [0, end) are bubble.
void paintCompute(Canvas& canvas, const Columns& columns, const TrackView& view, Ns end, const Look& look, const LabelGlyphs& glyphs);

/// Outlines of predicted spans over measured ones.
void paintOutlines(Canvas& canvas, const Columns& columns, const SpanTrack& predicted, const Look& look);

/// Messages and reductions, each kind in its lane; later ones over earlier ones.
void paintMessages(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look);

/// Whether any visible block is wider than `kWidestLabelled`.
[[nodiscard]] bool hasWideBlocks(const Columns& columns, const SpanTrack& track);
/// Paints their labels over the whole image, which is a copy: the row's own image is shifted when the view moves.
void paintWideLabels(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look, const Glyphs& glyphs);

}  // namespace pw::gui
