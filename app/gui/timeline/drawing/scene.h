#pragma once

#include <QString>
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/common/theme.h"
#include "app/gui/timeline/drawing/viewport.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// Where a drawn span comes from.
enum class Source : std::uint8_t { Predicted, Measured };

struct SourcedSpan {
  Source source = Source::Predicted;
  SpanRef span;

  auto operator<=>(const SourcedSpan&) const = default;
};

/// How the predicted and the measured timeline are arranged.
enum class Arrangement : std::uint8_t {
  Below,  ///< of each rank predicted on top, measured below, on one axis
  Above,  ///< of each rank measured on top
  Over,   ///< one over the other: measured blocks, predicted outlines
};

/// A rank's place on the screen.
struct RankView {
  Rank rank;
  bool pinned = false;     ///< stays at the top while others scroll
  bool collapsed = false;  ///< compute track only, half as high

  bool operator==(const RankView&) const = default;
};

/// A gap of a rank's compute track: before its `next`-th span, or (`next` the track's size) at its end.
struct BubbleRef {
  Source source = Source::Predicted;
  Rank rank;
  std::int32_t next = 0;

  bool operator==(const BubbleRef&) const = default;
};

/// A note or, without a text, a bookmark.
struct NoteFlag {
  QString text;
  Ns time = 0;
  std::optional<SourcedSpan> span;  ///< that it is at, or beside; nothing: at a time
  bool isCurrent = false;
  std::size_t note = 0;               ///< its number in the document
  std::optional<BubbleRef> bubble{};  ///< that it is at, beside the span

  bool operator==(const NoteFlag&) const = default;
};

/// Everything that decides what the timeline looks like, except for the time range (Viewport). `Timeline` pointers may be null.
struct Scene {
  std::shared_ptr<const Timeline> predicted, measured;
  /// What the two are called: `predicted` and `measured`, or `this plan` and `plan A`.
  QString predictedName = QStringLiteral("predicted"), measuredName = QStringLiteral("measured");
  Arrangement arrangement = Arrangement::Below;
  ColourBy colourBy = ColourBy::Kind;
  bool differences = false;     ///< measured blocks coloured by their duration's error against the matched predicted one
  bool comparesTimes = true;    ///< blocks of one name do the same work in both timelines: their stages begin at the same places
  std::vector<RankView> ranks;  ///< in the order shown
  std::vector<QString> groups;  ///< by rank: the node or replica it belongs to; empty: there are none
  bool showsCommunication = true, showsMemory = true;
  bool showsOverview = true;        ///< above the ruler
  bool showsArrows = true;          ///< of what the selected block receives and sends
  double rowScale = 1;              ///< of the rows' usual height; see `layOutRows`
  std::vector<Bytes> memoryLimits;  ///< by rank, 0 or left out: no line
  // Marks.
  std::optional<SourcedSpan> hovered, selected;
  std::vector<SourcedSpan> highlighted;    ///< chain of causes, critical path, found ones; sorted
  bool dimsOthers = false;                 ///< what is not highlighted is faint
  std::optional<std::pair<Ns, Ns>> range;  ///< selected on the ruler
  std::vector<NoteFlag> notes;             ///< in a lane below the ruler, where there are any; not those of another run
  double zoomText = 1;                     ///< font scaling
};

/// The timeline of a source; null: none is shown.
[[nodiscard]] inline const Timeline* timelineFrom(const Scene& scene, Source source) {
  return (source == Source::Predicted ? scene.predicted : scene.measured).get();
}
[[nodiscard]] inline bool isEmpty(const Scene& scene) { return !scene.predicted && !scene.measured; }
/// When the longer of its timelines ends; 0: there is none.
[[nodiscard]] inline Ns endOf(const Scene& scene) {
  return std::max(scene.predicted ? scene.predicted->end : 0, scene.measured ? scene.measured->end : 0);
}

inline constexpr int kRulerHeight = 26;      ///< at font scale 1
inline constexpr int kNoteLane = 18;         ///< below the ruler
inline constexpr int kLabelWidth = 96;       ///< rank names, left of the tracks
inline constexpr int kBothLabelWidth = 120;  ///< of two timelines: `this plan 2.87 MiB`
inline constexpr int kGroupWidth = 15;       ///< names of groups, upright, left of the ranks' names where there are any
/// `zoomText` times how much larger the application's font is than usual; sizes of rows and text follow it.
[[nodiscard]] double textScale(const Scene& scene);

}  // namespace pw::gui
