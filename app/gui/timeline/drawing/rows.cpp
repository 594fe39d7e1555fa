#include <algorithm>
#include <array>
#include <cmath>

#include "app/gui/timeline/drawing/look.h"
#include "app/gui/timeline/drawing/rows.h"
#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {
namespace {

// Pixels at font scale 1.
constexpr double kCompute = 28, kCollapsed = 13, kCommunication = 13, kMemory = 30;
constexpr double kGap = 2, kRankGap = 9, kCollapsedGap = 4;

/// The tracks of a rank that are shown.
struct Tracks {
  bool collapsed = false, communication = true, memory = true;
  int strips = 1;  ///< 2: predicted and measured, one above the other

  [[nodiscard]] double compute() const { return collapsed ? kCollapsed : kCompute; }
  [[nodiscard]] double rankGap() const { return collapsed ? kCollapsedGap : kRankGap; }
  [[nodiscard]] double rows() const { return strips * (compute() + (communication ? kCommunication : 0)) + (memory ? kMemory : 0); }
  [[nodiscard]] double gaps() const { return rankGap() + kGap * (strips * (communication ? 2 : 1) + (memory ? 1 : 0) - 1); }
  [[nodiscard]] double height() const { return rows() + gaps(); }
};

/// Whether either timeline has messages or reductions, or memory; a track of what is not known would only take the room of the others.
bool hasMessages(const Scene& scene) {
  return std::ranges::any_of(std::array{scene.predicted.get(), scene.measured.get()}, [](const Timeline* timeline) {
    return timeline != nullptr && std::ranges::any_of(timeline->ranks, [](const auto& rank) { return rank.communication.size() > 0; });
  });
}
bool hasMemory(const Scene& scene) {
  return std::ranges::any_of(std::array{scene.predicted.get(), scene.measured.get()},
                             [](const Timeline* timeline) { return timeline != nullptr && timeline->peak > 0; });
}

/// What is known and wanted of a rank.
Tracks tracksOf(const Scene& scene, bool collapsed) {
  const bool two = scene.predicted && scene.measured && scene.arrangement != Arrangement::Over;
  return {collapsed, !collapsed && scene.showsCommunication && hasMessages(scene), !collapsed && scene.showsMemory && hasMemory(scene),
          two ? 2 : 1};
}

/// Rows one below the other.
class Stacker {
 public:
  explicit Stacker(const Scene& scene)
      : scene_(scene), expanded_(tracksOf(scene, false)), collapsed_(tracksOf(scene, true)), scale_(textScale(scene)) {}

  void add(const RankView& view) {
    const Tracks tracks = fitting(view.collapsed ? collapsed_ : expanded_);
    const Source last = scene_.measured ? Source::Measured : Source::Predicted;
    const auto strips = [&](Row::Kind kind, double height) {
      const bool isAbove = scene_.arrangement == Arrangement::Above;
      if (tracks.strips == 2) put(view, kind, isAbove ? Source::Measured : Source::Predicted, height);
      put(view, kind, tracks.strips == 2 && isAbove ? Source::Predicted : last, height);
    };
    strips(Row::Kind::Compute, tracks.compute());
    if (tracks.communication) strips(Row::Kind::Communication, kCommunication);
    if (tracks.memory) put(view, Row::Kind::Memory, last, kMemory);
    top_ += pixels(tracks.rankGap() * gapScale_) - pixels(kGap * gapScale_);
  }
  [[nodiscard]] int top() const { return top_; }
  [[nodiscard]] std::vector<Row> take() { return std::move(rows_); }

 private:
  /// Those of the tracks that can be read at this height, and how large they and the gaps between them then are.
  Tracks fitting(Tracks tracks) {
    constexpr double kReadable = 0.7;  ///< of the usual height
    const double height = std::max(scene_.rowScale * tracks.height(), tracks.strips * kLeastRow / scale_);
    if (tracks.memory && height < kReadable * tracks.height()) tracks.memory = false;
    if (tracks.communication && height < kReadable * tracks.height()) tracks.communication = false;
    gapScale_ = std::min(1.0, height / tracks.height());
    rowScale_ = (height - tracks.gaps() * gapScale_) / tracks.rows();
    return tracks;
  }
  [[nodiscard]] int pixels(double size) const { return std::max(1, static_cast<int>(std::lround(size * scale_))); }
  void put(const RankView& view, Row::Kind kind, Source source, double height) {
    const int used = pixels(height * rowScale_);
    rows_.push_back({kind, source, view.rank, top_, used, view.pinned});
    top_ += used + pixels(kGap * gapScale_);
  }

  const Scene& scene_;
  Tracks expanded_, collapsed_;
  double scale_;
  double rowScale_ = 1, gapScale_ = 1;  ///< of the rank that is added
  int top_ = 4;
  std::vector<Row> rows_;
};

const SpanTrack* trackOf(const Scene& scene, const Row& row) {
  const auto& timeline = row.source == Source::Predicted ? scene.predicted : scene.measured;
  if (!timeline || row.rank.value < 0 || row.rank.index() >= timeline->ranks.size()) return nullptr;
  const Timeline::RankTracks& tracks = timeline->ranks[row.rank.index()];
  return row.kind == Row::Kind::Compute ? &tracks.compute : &tracks.communication;
}

/// Of the spans under a pixel one that `suits`, nearest to the pixel's middle: the last one that started before it counts first.
template <class Suits>
std::optional<std::size_t> nearestInPixel(const SpanTrack& track, Ns from, Ns middle, Ns to, Suits suits) {
  constexpr std::size_t kMost = 4096;  // looked at to either side
  const std::size_t split = firstFrom(track, middle + 1);
  const auto [first, last] = visible(track, from, to);
  for (std::size_t i = split; i > first && split - i < kMost; --i) {
    if (track.end[i - 1] > middle && suits(i - 1)) return i - 1;
  }
  std::optional<std::size_t> nearest;
  Ns distance = 0;
  for (std::size_t i = split; i > first && split - i < kMost; --i) {
    if (track.end[i - 1] <= from || track.end[i - 1] == track.start[i - 1] || !suits(i - 1)) continue;
    nearest = i - 1;
    distance = middle - track.end[i - 1];
    break;
  }
  for (std::size_t i = split; i < last && i - split < kMost; ++i) {
    if (track.end[i] == track.start[i] || !suits(i)) continue;
    return !nearest || track.start[i] - middle < distance ? i : *nearest;
  }
  return nearest;
}

/// What a compute row shows at a pixel, `y` from the row's top.
std::optional<std::size_t> computeAt(const SpanTrack& track, const Viewport& view, int x, int y, int height) {
  const auto time = [&](double at) { return static_cast<Ns>(std::floor(view.start + at * view.nsPerPixel)); };
  const Ns from = static_cast<Ns>(std::ceil(view.start + x * view.nsPerPixel)), middle = time(x + 0.5),
           to = static_cast<Ns>(std::ceil(view.start + (x + 1) * view.nsPerPixel));
  if (const auto at = spanAt(track, middle)) {
    const bool wide = static_cast<double>(track.end[*at] - track.start[*at]) >= view.nsPerPixel;
    if (wide) return isSlotAt(track, *at) && y >= height / 2 ? *at + 1 : *at;
  }
  // A merged column: a narrow one starts in it, or one from the column before reaches its middle.
  const auto isNarrow = [&](std::size_t i) { return static_cast<double>(track.end[i] - track.start[i]) < view.nsPerPixel; };
  const std::size_t first = firstFrom(track, from);
  const bool begins = first < track.size() && track.start[first] < to && isNarrow(first);
  if (!begins && (first == 0 || !isNarrow(first - 1) || view.xOf(track.end[first - 1]) < x + 0.5)) return std::nullopt;
  const std::size_t next = firstFrom(track, to, first);
  const bool few = next - first <= SpanTrack::kBlock;
  const Stack stack = stackOf(few ? busyOfFew(track, from, to, first, next) : busyByKind(track, from, to), view.nsPerPixel, height);
  int bottom = height;
  for (std::size_t p = 0; p < stack.count; ++p) {
    bottom -= stack.parts[p].height;
    if (y < bottom) continue;
    const SpanKind kind = stack.parts[p].kind;
    return nearestInPixel(track, from, middle, to, [&](std::size_t i) { return track.tags[i].kind == kind; });
  }
  return std::nullopt;
}

}  // namespace

int rulerHeight(const Scene& scene) { return static_cast<int>(std::lround(kRulerHeight * textScale(scene))) + noteLaneHeight(scene); }
int noteLaneHeight(const Scene& scene) { return scene.notes.empty() ? 0 : static_cast<int>(std::lround(kNoteLane * textScale(scene))); }
int labelWidth(const Scene& scene) {
  const int width = scene.predicted && scene.measured ? kBothLabelWidth : kLabelWidth;
  return groupWidth(scene) + static_cast<int>(std::lround(width * textScale(scene)));
}
int groupWidth(const Scene& scene) { return scene.groups.empty() ? 0 : static_cast<int>(std::lround(kGroupWidth * textScale(scene))); }

RowLayout layOutRows(const Scene& scene) {
  Stacker stacker(scene);
  RowLayout layout;
  if (scene.predicted || scene.measured) {
    for (const bool pinned : {true, false}) {
      for (const RankView& view : scene.ranks) {
        if (view.pinned == pinned) stacker.add(view);
      }
      if (pinned && std::any_of(scene.ranks.begin(), scene.ranks.end(), [](const RankView& view) { return view.pinned; }))
        layout.pinnedHeight = stacker.top();
    }
  }
  layout.rows = stacker.take();
  layout.height = layout.rows.empty() ? 0 : stacker.top();
  return layout;
}

double leastRowScale(const Scene& scene) {
  bool isAnyExpanded = false;
  for (const RankView& view : scene.ranks) isAnyExpanded = isAnyExpanded || !view.collapsed;
  const Tracks tracks = tracksOf(scene, !isAnyExpanded);
  return std::min(1.0, tracks.strips * kLeastRow / textScale(scene) / tracks.height());
}

double fittedRowScale(const Scene& scene, int height) {
  constexpr int kHalvings = 14;
  Scene tried = scene;
  const auto hasRoom = [&](double scale) {
    tried.rowScale = scale;
    return layOutRows(tried).height <= height;
  };
  double least = leastRowScale(scene), most = kMostRowScale;
  if (hasRoom(most)) return most;
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (least + most) / 2;
    (hasRoom(middle) ? least : most) = middle;
  }
  return least;
}

std::optional<RankPlace> rankPlaceAt(const RowLayout& layout, int line) {
  std::optional<RankPlace> found;
  for (std::size_t i = 0; i < layout.rows.size();) {
    const Row& first = layout.rows[i];
    while (i < layout.rows.size() && layout.rows[i].rank == first.rank) ++i;
    if (first.pinned || (found && line < first.top)) continue;
    const int next = i < layout.rows.size() ? layout.rows[i].top : layout.height;
    found = RankPlace{first.rank, std::clamp(static_cast<double>(line - first.top) / (next - first.top), 0.0, 1.0)};
  }
  return found;
}

int lineOf(const RowLayout& layout, const RankPlace& place) {
  for (std::size_t i = 0; i < layout.rows.size(); ++i) {
    const Row& first = layout.rows[i];
    if (first.rank != place.rank) continue;
    while (i < layout.rows.size() && layout.rows[i].rank == place.rank) ++i;
    const int next = i < layout.rows.size() ? layout.rows[i].top : layout.height;
    return first.top + static_cast<int>(std::lround(place.share * (next - first.top)));
  }
  return 0;
}

std::optional<std::size_t> rowOf(const RowLayout& layout, const SourcedSpan& span) {
  std::optional<std::size_t> found;
  const auto wanted = span.span.track == TrackKind::Compute ? Row::Kind::Compute : Row::Kind::Communication;
  for (std::size_t i = 0; i < layout.rows.size(); ++i) {
    const Row& row = layout.rows[i];
    if (row.rank != span.span.rank || (row.kind != wanted && row.kind != Row::Kind::Compute)) continue;
    // The right kind before the right source: an `Over` row shows both.
    const auto score = [&](const Row& r) { return (r.kind == wanted ? 2 : 0) + (r.source == span.source ? 1 : 0); };
    if (!found || score(row) > score(layout.rows[*found])) found = i;
  }
  return found;
}

Hit hitTest(const Scene& scene, const RowLayout& layout, const Viewport& view, int x, int y, int scroll) {
  Hit hit;
  hit.time = static_cast<Ns>(std::floor(view.start + (x + 0.5) * view.nsPerPixel));
  const bool pinned = y < layout.pinnedHeight;
  const int line = pinned ? y : y + scroll;
  for (const Row& row : layout.rows) {
    if (row.pinned == pinned && line >= row.top && line < row.top + row.height) hit.row = row;
  }
  if (!hit.row || hit.row->kind == Row::Kind::Memory) return hit;
  const SpanTrack* const track = trackOf(scene, *hit.row);
  if (track == nullptr) return hit;
  const int inside = line - hit.row->top;
  std::optional<std::size_t> found;
  TrackKind kind = TrackKind::Compute;
  if (hit.row->kind == Row::Kind::Compute) {
    found = computeAt(*track, view, x, inside, hit.row->height);
    const auto& timeline = hit.row->source == Source::Predicted ? scene.predicted : scene.measured;
    if (!found) hit.bubble = bubbleAt(*timeline, hit.row->rank, hit.time);
  } else {
    kind = TrackKind::Communication;
    const int lanes = messageLanes(*track);
    int lane = 0;
    while (lane + 1 < lanes && inside >= messageLaneLines(lane + 1, lanes, hit.row->height).first) ++lane;
    found = nearestInPixel(*track, static_cast<Ns>(std::ceil(view.start + x * view.nsPerPixel)), hit.time,
                           static_cast<Ns>(std::ceil(view.start + (x + 1) * view.nsPerPixel)),
                           [&](std::size_t i) { return messageLane(track->tags[i].kind) == lane; });
  }
  if (found) hit.span = SourcedSpan{hit.row->source, {hit.row->rank, kind, static_cast<std::int32_t>(*found)}};
  return hit;
}

}  // namespace pw::gui
