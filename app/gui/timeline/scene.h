#pragma once

#include <QRect>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/common/theme.h"
#include "app/gui/timeline/viewport.h"
#include "simulator/report/timeline.h"

class QPainter;

namespace pw::gui {

/// Where a drawn span comes from.
enum class Source : std::uint8_t { Predicted, Measured };

struct SourcedSpan {
  Source source = Source::Predicted;
  SpanRef span;

  auto operator<=>(const SourcedSpan&) const = default;
};

/// How predicted and measured stand to each other.
enum class Arrangement : std::uint8_t {
  Below,  ///< of each rank predicted on top, measured below, on one axis
  Over,   ///< one over the other: measured blocks, predicted outlines
};

/// A rank's place on the screen.
struct RankView {
  Rank rank;
  bool pinned = false;     ///< stays at the top while others scroll
  bool collapsed = false;  ///< compute track only, half as high

  bool operator==(const RankView&) const = default;
};

/// All that decides what the timeline looks like, but for the time range (Viewport). `Timeline` pointers may be null.
struct Scene {
  std::shared_ptr<const Timeline> predicted, measured;
  Arrangement arrangement = Arrangement::Below;
  ColourBy colourBy = ColourBy::Kind;
  bool differences = false;             ///< measured blocks coloured by their duration's error against the matched predicted one
  std::vector<RankView> ranks;          ///< in the order shown
  bool showsCommunication = true, showsMemory = true;
  Bytes memoryLimit = 0;                ///< 0: no line
  // Marks.
  std::optional<SourcedSpan> hovered, selected;
  std::vector<SourcedSpan> highlighted; ///< chain of causes, critical path, found ones; sorted
  bool dimsOthers = false;              ///< what is not highlighted is faint
  std::optional<std::pair<Ns, Ns>> range;  ///< selected on the ruler
  double zoomText = 1;                  ///< font scaling
};

/// A horizontal strip.
struct Row {
  enum class Kind : std::uint8_t { Compute, Communication, Memory } kind = Kind::Compute;
  Source source = Source::Predicted;    ///< of an `Over` row: Measured, with predicted outlines
  Rank rank;
  int top = 0, height = 0;              ///< pixels from the first row's top (pinned rows: from the top of the view)
  bool pinned = false;
};

/// The rows of a scene from top to bottom, pinned ranks first, and their height together.
struct RowLayout {
  std::vector<Row> rows;
  int pinnedHeight = 0;  ///< of the pinned ranks' rows
  int height = 0;        ///< of all
};
[[nodiscard]] RowLayout layOutRows(const Scene& scene);

inline constexpr int kRulerHeight = 26;   ///< at font scale 1
inline constexpr int kLabelWidth = 96;    ///< rank names, left of the tracks
/// What the two come to for this scene and the application's font.
[[nodiscard]] int rulerHeight(const Scene& scene);
[[nodiscard]] int labelWidth(const Scene& scene);
/// `zoomText` times how much larger the application's font is than usual; sizes of rows and text follow it.
[[nodiscard]] double textScale(const Scene& scene);

/// What lies under a pixel of the drawing area (right of the labels, below the ruler), `scroll` pixels scrolled down.
struct Hit {
  std::optional<Row> row;
  std::optional<SourcedSpan> span;
  std::optional<std::pair<Ns, Ns>> bubble;  ///< of a compute row without a span
  Ns time = 0;
};
[[nodiscard]] Hit hitTest(const Scene& scene, const RowLayout& layout, const Viewport& view, int x, int y, int scroll);

/// Paints ruler, labels and rows into `area`. Blocks narrower than a pixel are merged: a pixel column shows the kinds' shares as a
/// stack, with a base line darkened from the kind that fills most of it. Cost: of what is visible, and log n for each merged pixel column; not of the number of spans.
/// Keeps the row images of the last call and paints only what is new where the view was moved by whole pixels.
class ScenePainter {
 public:
  void paint(QPainter& painter, const QRect& area, const Scene& scene, const RowLayout& layout, const Viewport& view, int scroll, const Theme& theme);
  void forget();  ///< timelines changed in place or the theme did

 private:
  struct Cache;
  std::shared_ptr<Cache> cache_;
};

/// A legend of kinds (or what colours mean), a line high.
void paintLegend(QPainter& painter, const QRect& area, const Scene& scene, const Theme& theme);

/// Spans of the two timelines that are the same action of the same rank, repeated ones in the order of starts: for each predicted compute span the
/// index of its measured one in the rank's compute track, or −1; and back. Linear.
struct Matches {
  std::vector<std::vector<std::int32_t>> measuredOf, predictedOf;  ///< by rank, then index
};
[[nodiscard]] Matches match(const Timeline& predicted, const Timeline& measured);

}  // namespace pw::gui
