#include "app/gui/timeline/drawing/scene_painter.h"

#include <QPaintEngine>
#include <QPainter>
#include <QSemaphore>
#include <QThreadPool>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>
#include <tuple>

#include "app/gui/timeline/drawing/matches.h"
#include "app/gui/timeline/drawing/memory_painter.h"
#include "app/gui/timeline/drawing/note_flags.h"
#include "app/gui/timeline/drawing/outlines.h"
#include "app/gui/timeline/drawing/ruler.h"
#include "app/gui/timeline/drawing/track_painter.h"

namespace pw::gui {
namespace {

/// Identifies the contents of a timeline, whose arrays may be refilled in place. Cost: linear in ranks.
std::uint64_t fingerprint(const Timeline* timeline) {
  if (timeline == nullptr) return 0;
  std::uint64_t hash = 0x9e3779b97f4a7c15;
  const auto add = [&hash](auto value) { hash = (hash ^ static_cast<std::uint64_t>(value)) * 0xff51afd7ed558ccd, hash ^= hash >> 32; };
  add(timeline->end), add(timeline->peak), add(timeline->stages);
  for (const Timeline::RankTracks& rank : timeline->ranks) {
    for (const SpanTrack* const track : {&rank.compute, &rank.communication}) {
      const std::size_t size = track->size();
      add(size);
      if (size == 0) continue;
      for (const Ns time : track->busy.back()) add(time);
      for (const std::size_t i : {std::size_t{0}, size / 3, size / 2, size - 1})
        add(track->start[i]), add(track->end[i]), add(track->tags[i].microbatch.value);
    }
    const std::size_t samples = rank.memory.bytes.size();
    add(samples);
    if (samples > 0) add(rank.memory.bytes[samples / 2]), add(rank.memory.time[samples / 2]), add(rank.memory.bytes.back());
  }
  return hash;
}

/// All that a row's image depends on besides the time range and the row.
struct Content {
  const Timeline *predicted = nullptr, *measured = nullptr;
  std::uint64_t predictedPrint = 0, measuredPrint = 0;
  Arrangement arrangement = Arrangement::Below;
  ColourBy colourBy = ColourBy::Kind;
  bool differences = false, comparesTimes = true, dims = false, dark = false;
  std::vector<Bytes> limits;
  double scale = 1, devicePixelRatio = 1;
  Ns tick = 0;
  std::vector<SourcedSpan> highlighted;

  bool operator==(const Content&) const = default;
};

constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max() / 2;

struct RowImage {
  QImage image;
  std::int64_t offset = kNothing;  ///< content column of its first column; kNothing: not painted
  bool used = false;
};

/// A row on the screen.
struct Shown {
  Row row;
  int top = 0;  ///< device pixels
  QRect clip;
  RowImage* image = nullptr;
};

/// Several stages on a rank: of the first spans, or surely as there are more stages than ranks.
bool hasSeveralStages(const Timeline& timeline, const SpanTrack& track) {
  if (timeline.stages > static_cast<int>(timeline.ranks.size())) return true;
  const std::size_t few = std::min<std::size_t>(track.size(), 1024);
  for (std::size_t i = 1; i < few; ++i) {
    if (track.tags[i].stage.value >= 0 && track.tags[i].stage != track.tags[0].stage) return true;
  }
  return false;
}

}  // namespace

struct ScenePainter::Cache {
  Content content;
  Columns columns;  ///< offset: of the view
  std::map<std::tuple<std::int32_t, Row::Kind, Source>, RowImage> rows;
  std::optional<Look> look;
  LabelGlyphs glyphs;
  std::optional<Matches> matches;
  std::map<const SpanTrack*, BlockSizes> sizes;  ///< of rows that are shown, or were

  void prepare(const Scene& scene, const Viewport& view, const Theme& theme, double ratio, int width);
  const Matches& matched(const Scene& scene);
  void paintRows(QPainter& painter, const PaintedRows& painted);
  void paintMarked(QPainter& painter, const PaintedRows& painted, const Theme& theme);
  void measure(const Scene& scene, const Row& row);
  [[nodiscard]] TrackView viewOf(const Scene& scene, Source source, Rank rank, TrackKind kind);
  [[nodiscard]] RowImage& prepared(const Row& row, int height);
  void update(const Scene& scene, const Row& row, RowImage& cached);
  void update(const Scene& scene, const std::vector<Shown>& shown);
  void paintStrip(const Scene& scene, const Row& row, QImage& image, int left, int right);
  void paintRow(const Scene& scene, const Row& row, Canvas& canvas);
  void paintMemoryStrip(const Scene& scene, const Row& row, Canvas& canvas);
  [[nodiscard]] QImage withWideLabels(const Scene& scene, const Row& row, const QImage& image);
  void paintShapes(const Scene& scene, const Row& row, Canvas& canvas);
};

void ScenePainter::Cache::prepare(const Scene& scene, const Viewport& view, const Theme& theme, double ratio, int width) {
  Content now{scene.predicted.get(),
              scene.measured.get(),
              fingerprint(scene.predicted.get()),
              fingerprint(scene.measured.get()),
              scene.arrangement,
              scene.colourBy,
              scene.differences,
              scene.comparesTimes,
              scene.dimsOthers,
              theme.dark,
              scene.memoryLimits,
              textScale(scene),
              ratio,
              rulerStep(view, scene),
              scene.highlighted};
  const bool sameTimelines = now.predicted == content.predicted && now.measured == content.measured &&
                             now.predictedPrint == content.predictedPrint && now.measuredPrint == content.measuredPrint;
  if (!sameTimelines) {
    matches.reset();
    sizes.clear();
  }
  if (!look || now != content) {
    for (auto& [key, row] : rows) row.offset = kNothing;
    if (now.scale != content.scale || ratio != content.devicePixelRatio || glyphs.usual.height() == 0)
      glyphs = {Glyphs(sceneFont(scene, 0.9), ratio), Glyphs(sceneFont(scene, 0.72), ratio)};
    look.emplace(scene, theme);
    content = std::move(now);
  }
  const double nsPerColumn = view.nsPerPixel / ratio;
  const double moved = (view.start - columns.anchor) / nsPerColumn;
  if (columns.width == width && columns.nsPerColumn == nsPerColumn && std::abs(moved - std::round(moved)) < 0.02 && std::abs(moved) < 1e9) {
    columns.offset = static_cast<std::int64_t>(std::round(moved));
  } else {
    columns = {view.start, nsPerColumn, 0, width};
    rows.clear();
  }
}

const Matches& ScenePainter::Cache::matched(const Scene& scene) {
  if (!matches) matches = matchSpans(*scene.predicted, *scene.measured);
  return *matches;
}

/// Notes the sizes of a row's blocks, before it is painted; where they are so narrow that few have labels, none are needed.
void ScenePainter::Cache::measure(const Scene& scene, const Row& row) {
  const Timeline* const timeline = timelineFrom(scene, row.source);
  if (row.kind != Row::Kind::Compute || timeline == nullptr || row.rank.index() >= timeline->ranks.size()) return;
  const SpanTrack& track = timeline->ranks[row.rank.index()].compute;
  constexpr double kNarrow = 3;  // columns
  Ns busy = 0;
  if (!track.busy.empty()) busy = std::accumulate(track.busy.back().begin(), track.busy.back().end(), Ns(0));
  if (static_cast<double>(busy) < kNarrow * columns.nsPerColumn * static_cast<double>(track.size()) || sizes.contains(&track)) return;
  sizes.emplace(&track, blockSizesOf(track, hasSeveralStages(*timeline, track)));
}

TrackView ScenePainter::Cache::viewOf(const Scene& scene, Source source, Rank rank, TrackKind kind) {
  TrackView view;
  const auto& timeline = source == Source::Predicted ? scene.predicted : scene.measured;
  if (!timeline || rank.value < 0 || rank.index() >= timeline->ranks.size()) return view;
  view.track = &trackOf(*timeline, {rank, kind, 0});
  view.dims = scene.dimsOthers;
  const SourcedSpan from{source, {rank, kind, 0}}, to{source, {rank, kind, std::numeric_limits<std::int32_t>::max()}};
  const auto first = std::lower_bound(scene.highlighted.begin(), scene.highlighted.end(), from);
  view.highlighted = {first, std::lower_bound(first, scene.highlighted.end(), to)};
  if (kind != TrackKind::Compute) return view;
  view.withStage = hasSeveralStages(*timeline, *view.track);
  if (const auto known = sizes.find(view.track); known != sizes.end()) view.sizes = &known->second;
  if (scene.differences && source == Source::Measured && scene.predicted) {
    view.predictedOf = &matched(scene).predictedOf[rank.index()];  // of a rank that is not predicted without any
    if (rank.index() < scene.predicted->ranks.size()) view.predicted = &scene.predicted->ranks[rank.index()].compute;
    view.comparesTimes = scene.comparesTimes;
  }
  return view;
}

void ScenePainter::Cache::paintMemoryStrip(const Scene& scene, const Row& row, Canvas& canvas) {
  MemoryLane lane;
  lane.limit = row.rank.index() < scene.memoryLimits.size() ? scene.memoryLimits[row.rank.index()] : Bytes{0};
  Bytes most = 1;
  for (const auto& timeline : {scene.predicted, scene.measured}) most = std::max(most, timeline ? timeline->peak : 0);
  // A limit far above all values would only flatten the curve.
  lane.top = static_cast<Bytes>(1.06 * static_cast<double>(lane.limit > 0 && lane.limit < 3 * most ? std::max(most, lane.limit) : most));
  const auto paint = [&](const std::shared_ptr<const Timeline>& timeline, bool filled) {
    if (!timeline || row.rank.index() >= timeline->ranks.size()) return;
    lane.track = &timeline->ranks[row.rank.index()].memory;
    lane.end = timeline->end;
    lane.filled = filled;
    paintMemory(canvas, columns, lane, *look);
  };
  paintLimit(canvas, columns, lane, *look);  // the curve over it
  paint(row.source == Source::Predicted ? scene.predicted : scene.measured, true);
  if (row.source == Source::Measured) paint(scene.predicted, false);
}

void ScenePainter::Cache::paintStrip(const Scene& scene, const Row& row, QImage& image, int left, int right) {
  Canvas canvas(image, left, right, columns.offset);
  paintRow(scene, row, canvas);
}

void ScenePainter::Cache::paintRow(const Scene& scene, const Row& row, Canvas& canvas) {
  const int left = canvas.left(), right = canvas.right(), height = canvas.height();
  canvas.fill(Box{left, 0, right, height}, look->background());
  if (row.kind != Row::Kind::Compute && content.tick > 0) {  // the ruler's ticks continue as faint lines
    const QRgb grid = mixed(look->background(), look->theme().grid.rgb(), 0.6);
    const auto first = static_cast<std::int64_t>(std::floor(static_cast<double>(columns.begin(left)) / static_cast<double>(content.tick)));
    for (Ns tick = first * content.tick; columns.edge(tick) < right; tick += content.tick)
      canvas.fill(Box{columns.edge(tick), 0, columns.edge(tick) + 1, height}, grid);
  }
  if (row.kind == Row::Kind::Memory) {
    paintMemoryStrip(scene, row, canvas);
    return;
  }
  const TrackView view =
      viewOf(scene, row.source, row.rank, row.kind == Row::Kind::Compute ? TrackKind::Compute : TrackKind::Communication);
  if (view.track == nullptr) return;
  if (row.kind == Row::Kind::Communication) {
    paintMessages(canvas, columns, view, *look);
    return;
  }
  paintCompute(canvas, columns, view, (row.source == Source::Predicted ? scene.predicted : scene.measured)->end, *look, glyphs);
  if (scene.arrangement == Arrangement::Over && row.source == Source::Measured && scene.predicted &&
      row.rank.index() < scene.predicted->ranks.size())
    paintOutlines(canvas, columns, scene.predicted->ranks[row.rank.index()].compute, *look);
}

/// Room for the row's image.
RowImage& ScenePainter::Cache::prepared(const Row& row, int height) {
  RowImage& cached = rows[{row.rank.value, row.kind, row.source}];
  cached.used = true;
  if (cached.image.width() != columns.width || cached.image.height() != height) {
    cached.image = QImage(columns.width, height, QImage::Format_RGB32);
    cached.offset = kNothing;
  }
  return cached;
}

/// Updates a row's image to the view: moves what it has, and paints what is new. Several rows may be updated at the same time.
void ScenePainter::Cache::update(const Scene& scene, const Row& row, RowImage& cached) {
  const int width = columns.width;
  const std::int64_t moved = columns.offset - cached.offset;
  cached.offset = columns.offset;
  if (moved == 0) return;
  if (std::abs(moved) >= width) return paintStrip(scene, row, cached.image, 0, width);
  const auto shift = static_cast<std::size_t>(std::abs(moved)), kept = static_cast<std::size_t>(width) - shift;
  for (int y = 0; y < cached.image.height(); ++y) {
    auto* const line = reinterpret_cast<QRgb*>(cached.image.scanLine(y));
    std::memmove(moved > 0 ? line : line + shift, moved > 0 ? line + shift : line, kept * sizeof(QRgb));
  }
  if (moved > 0) {
    paintStrip(scene, row, cached.image, static_cast<int>(kept), width);
  } else {
    paintStrip(scene, row, cached.image, 0, static_cast<int>(shift));
  }
}

/// Rows that are new as a whole on all cores; strips are cheaper than threads.
void ScenePainter::Cache::update(const Scene& scene, const std::vector<Shown>& shown) {
  if (scene.differences && scene.predicted && scene.measured) (void)matched(scene);  // not by several threads
  std::vector<const Shown*> whole;
  for (const Shown& row : shown) {
    if (std::abs(columns.offset - row.image->offset) >= columns.width / 2) {
      whole.push_back(&row);
    } else {
      update(scene, row.row, *row.image);
    }
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < whole.size(); i = next++) update(scene, whole[i]->row, *whole[i]->image);
  };
  QThreadPool& pool = *QThreadPool::globalInstance();
  QSemaphore done;
  int helpers = 0;
  const int wanted = std::min(pool.maxThreadCount() - 1, static_cast<int>(whole.size()) / 4);
  for (int h = 0; h < wanted; ++h) {
    // Only threads that are free now: a late one would find no work, but `paint` would have to wait for it.
    helpers += pool.tryStart([&] {
      work();
      done.release();
    })
                   ? 1
                   : 0;
  }
  work();
  done.acquire(helpers);
}

QImage ScenePainter::Cache::withWideLabels(const Scene& scene, const Row& row, const QImage& image) {
  if (row.kind != Row::Kind::Compute) return image;
  const TrackView view = viewOf(scene, row.source, row.rank, TrackKind::Compute);
  if (view.track == nullptr || !hasWideBlocks(columns, *view.track)) return image;
  QImage copy = image.copy();
  Canvas canvas(copy, 0, copy.width(), columns.offset);
  paintWideLabels(canvas, columns, view, *look, glyphs.usual);
  return copy;
}

/// The row with its wide labels.
void ScenePainter::Cache::paintShapes(const Scene& scene, const Row& row, Canvas& canvas) {
  paintRow(scene, row, canvas);
  if (row.kind != Row::Kind::Compute) return;
  const TrackView view = viewOf(scene, row.source, row.rank, TrackKind::Compute);
  if (view.track != nullptr) paintWideLabels(canvas, columns, view, *look, glyphs.usual);
}

namespace {

/// Whether the painter keeps shapes, to be scaled later, instead of pixels.
bool keepsShapes(const QPainter& painter) {
  const QPaintEngine* const engine = painter.paintEngine();
  return engine != nullptr && (engine->type() == QPaintEngine::SVG || engine->type() == QPaintEngine::Pdf);
}

}  // namespace

/// Images of the rows in sight, those that were painted before as far as they still apply; shapes for a file that keeps them.
void ScenePainter::Cache::paintRows(QPainter& painter, const PaintedRows& painted) {
  const QRect& tracks = painted.tracks;
  const Scene& scene = painted.scene;
  const double ratio = painter.device()->devicePixelRatioF();
  for (auto& [key, row] : rows) row.used = false;
  std::vector<Shown> shown;
  for (const Row& row : painted.layout.rows) {
    const int y = tracks.top() + (row.pinned ? row.top : row.top - painted.scroll);
    const QRect clip = row.pinned ? tracks : tracks.adjusted(0, painted.layout.pinnedHeight, 0, 0);
    if (y > clip.bottom() || y + row.height <= clip.top()) continue;
    const int top = static_cast<int>(std::lround(y * ratio)), bottom = static_cast<int>(std::lround((y + row.height) * ratio));
    measure(scene, row);
    if (keepsShapes(painter)) {
      painter.setClipRect(clip);
      Canvas canvas(painter, QRect(tracks.left(), y, tracks.width(), row.height));
      paintShapes(scene, row, canvas);
    } else {
      shown.push_back({row, top, clip, &prepared(row, bottom - top)});
    }
  }
  update(scene, shown);
  for (const Shown& row : shown) {
    QImage image = withWideLabels(scene, row.row, row.image->image);
    image.setDevicePixelRatio(ratio);
    painter.setClipRect(row.clip);
    painter.drawImage(QPointF(tracks.left(), row.top / ratio), image);
  }
  std::erase_if(rows, [](const auto& row) { return !row.second.used; });
}

/// What is hovered or selected, with the same action in the other timeline, and the chosen times.
void ScenePainter::Cache::paintMarked(QPainter& painter, const PaintedRows& painted, const Theme& theme) {
  const Scene& scene = painted.scene;
  painter.setClipRect(painted.tracks);
  const auto outline = [&](const std::optional<SourcedSpan>& marked, const QColor& colour, int thickness) {
    if (!marked) return;
    paintOutline(painter, painted, *marked, colour, thickness);
    if (!scene.predicted || !scene.measured || marked->span.track != TrackKind::Compute) return;
    if (const auto other = matchOf(*marked, matched(scene))) paintOutline(painter, painted, *other, colour, thickness);
  };
  outline(scene.hovered, theme.text, 1);
  outline(scene.selected, theme.focus, 2);
  if (scene.range) paintRange(painter, painted, *scene.range, theme);
  painter.setClipping(false);
}

void ScenePainter::paint(QPainter& painter, const QRect& area, const Scene& scene, const RowLayout& layout, const Viewport& view,
                         int scroll, const Theme& theme) {
  if (!cache_) cache_ = std::make_shared<Cache>();
  const int labels = labelWidth(scene), ruler = rulerHeight(scene);
  const QRect tracks = area.adjusted(labels, ruler, 0, 0);
  const double ratio = painter.device()->devicePixelRatioF();
  if (tracks.width() <= 0 || tracks.height() <= 0) {
    painter.fillRect(area, theme.background);
    return;
  }
  cache_->prepare(scene, view, theme, ratio, static_cast<int>(std::lround(tracks.width() * ratio)));
  painter.save();
  painter.setRenderHint(QPainter::Antialiasing, false);
  painter.fillRect(tracks, theme.background);
  const PaintedRows painted{tracks, scene, layout, view, scroll};
  cache_->paintRows(painter, painted);
  cache_->paintMarked(painter, painted, theme);
  paintNotes(painter, tracks, scene, layout, view, scroll, theme);
  if (layout.pinnedHeight > 0) {
    painter.setPen(theme.accent);
    painter.drawLine(area.left(), tracks.top() + layout.pinnedHeight - 4, area.right(), tracks.top() + layout.pinnedHeight - 4);
  }
  paintLabels(painter, QRect(area.left(), tracks.top(), labels, tracks.height()), scene, layout, scroll, theme);
  paintRuler(painter, QRect(tracks.left(), area.top(), tracks.width(), ruler - noteLaneHeight(scene)), scene, view, theme);
  painter.fillRect(QRect(area.left(), area.top(), labels, ruler), theme.alternate);
  painter.setPen(theme.grid);
  painter.drawLine(area.left(), area.top() + ruler - 1, area.left() + labels - 1, area.top() + ruler - 1);
  painter.drawLine(area.left() + labels - 1, area.top(), area.left() + labels - 1, area.top() + ruler - 1);
  painter.restore();
}

void ScenePainter::forget() { cache_.reset(); }

}  // namespace pw::gui
