#pragma once

#include <QByteArray>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "app/gui/document/notes.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"
#include "app/gui/timeline/facts/dependencies.h"

namespace pw::gui {

// ---- From span to span ----

/// Whether a timeline has this span; null has none.
[[nodiscard]] bool exists(const Timeline* timeline, const SpanRef& span);
/// What a span that exists shows.
[[nodiscard]] const SpanTag& tagOf(const Timeline& timeline, const SpanRef& span);
/// The next (direction > 0) or previous span of its track; at either end the span itself.
[[nodiscard]] SpanRef neighbour(const Timeline& timeline, const SpanRef& span, int direction);
/// The span of a track nearest to a time: under it, else with the nearest end; nothing on an empty track. O(log n).
[[nodiscard]] std::optional<std::int32_t> nearestSpan(const SpanTrack& track, Ns time);
/// The span nearest in time on the next row below (direction > 0) or above that has any; the span itself where there is none. Memory rows
/// are passed over.
[[nodiscard]] SourcedSpan onRowBeside(const Scene& scene, const RowLayout& layout, const SourcedSpan& span, int direction);
/// Where a dependency leads from a span: backward to the input that ended last, forward to the output whose use comes first; where there is
/// none, to its neighbour on the rank. The span itself at the ends.
[[nodiscard]] SpanRef alongDependency(const Dependencies& dependencies, const Timeline& timeline, const SpanRef& span, int direction);
/// The same action or message in another state of the timeline: the one at the same index where that still is it. O(n) of its track.
[[nodiscard]] std::optional<SpanRef> sameSpan(const Timeline& timeline, const SpanRef& old, const SpanTag& tag);

/// The block of that name; nothing where its timeline is not shown or has no such block.
[[nodiscard]] std::optional<SourcedSpan> spanNamed(const Scene& scene, const BlockName& name);
/// What a block is called, to find it again; the span must exist.
[[nodiscard]] BlockName blockName(const Scene& scene, const SourcedSpan& span);

// ---- Ranks on the screen ----

/// The ranks of a timeline of `count`: those shown keep order and state, new ones are appended, those that no longer exist are left out.
[[nodiscard]] std::vector<RankView> rankViews(const std::vector<RankView>& shown, std::size_t count);
/// With a rank moved past its neighbour (direction ±1), among pinned or among other ranks.
[[nodiscard]] std::vector<RankView> withRankMoved(std::vector<RankView> ranks, Rank rank, int direction);
/// With a rank in the place of another one that is pinned as it is; unchanged else.
[[nodiscard]] std::vector<RankView> withRankMovedTo(std::vector<RankView> ranks, Rank rank, Rank place);

// ---- What a project remembers ----

/// A bubble, by a time within it.
struct BubbleName {
  bool isMeasured = false;
  Rank rank;
  Ns time = 0;

  bool operator==(const BubbleName&) const = default;
};
using SavedSelection = std::variant<std::monostate, BlockName, BubbleName, std::pair<Ns, Ns>>;

/// The view as it is stored with the project.
struct SavedView {
  std::optional<std::pair<double, double>> shown;  ///< from, to [ns]; nothing: all
  int scroll = 0;
  std::vector<RankView> ranks;
  Arrangement arrangement = Arrangement::Below;
  ColourBy colourBy = ColourBy::Kind;
  bool differences = false, showsCommunication = true, showsMemory = true, showsOverview = true;
  double rowScale = 1;
  bool fitsHeight = false;   ///< rows are as high as all have room, whatever `rowScale` says
  SavedSelection selection;  ///< a block, a bubble, or a range of time

  bool operator==(const SavedView&) const = default;
};
[[nodiscard]] QByteArray toJson(const SavedView& view);
/// Without what is as in a new window, for a command line.
[[nodiscard]] QByteArray toShortJson(const SavedView& view);
/// Nothing for text that is not a view. Unknown words take their defaults.
[[nodiscard]] std::optional<SavedView> parseView(const QByteArray& json);

}  // namespace pw::gui
