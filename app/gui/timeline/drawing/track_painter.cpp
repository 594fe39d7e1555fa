#include "app/gui/timeline/drawing/track_painter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pw::gui {
namespace {

class ComputePainter {
 public:
  ComputePainter(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look, const LabelGlyphs& glyphs)
      : canvas_(canvas), columns_(columns), view_(view), track_(*view.track), look_(look), glyphs_(glyphs) {
    glyphsOf_.fill(&glyphs.usual);
    for (std::size_t kind = 0; view.sizes != nullptr && kind < kSpanKinds; ++kind) glyphsOf_[kind] = fitting(*view.sizes, kind);
  }

  void paint(Ns end) {
    canvas_.fill(Box{columns_.edge(0), 0, columns_.edge(end), canvas_.height()}, look_.bubble());
    auto [i, last] = visible(track_, columns_.begin(canvas_.left()) - 1, columns_.begin(canvas_.right()) + 1);
    while (i < last) {
      if (isWide(i)) {
        i += paintBlock(i);
        continue;
      }
      const int column = static_cast<int>(std::floor(columns_.exact(track_.start[i])));
      const std::size_t next = std::max(i + 1, firstFrom(track_, columns_.begin(column + 1), i));
      paintColumn(column, i, next);
      // The last one that starts in the column may reach beyond it.
      if (isWide(next - 1)) {
        const bool second = next >= i + 2 && isSlotAt(track_, next - 2);
        (void)paintBlock(next - (second ? 2 : 1));
      } else if (columns_.exact(track_.end[next - 1]) >= column + 1.5) {
        paintColumn(column + 1, next - 1, std::max(next, firstFrom(track_, columns_.begin(column + 2), next)));
      }
      i = next;
    }
  }

 private:
  [[nodiscard]] bool isWide(std::size_t i) const { return static_cast<double>(track_.end[i] - track_.start[i]) >= columns_.nsPerColumn; }

  [[nodiscard]] Fill fillOf(std::size_t i) const {
    if (view_.predictedOf == nullptr) return look_.of(track_.tags[i]);
    const std::int32_t match = (*view_.predictedOf)[i];
    if (match < 0 || !view_.comparesTimes) return look_.ofDifference(std::nullopt);
    const auto m = static_cast<std::size_t>(match);
    if (view_.predicted->tags[m].kind != track_.tags[i].kind) return look_.ofDifference(std::nullopt);  // B and I: other work
    const auto expected = static_cast<double>(view_.predicted->end[m] - view_.predicted->start[m]);
    if (expected <= 0) return look_.ofDifference(std::nullopt);
    return look_.ofDifference(static_cast<double>(track_.end[i] - track_.start[i]) / expected - 1);
  }

  /// The block at i, or the two of a slot; returns how many.
  std::size_t paintBlock(std::size_t i) {
    const Box box{columns_.edge(track_.start[i]), 0, columns_.edge(track_.end[i]), canvas_.height()};
    if (!isSlotAt(track_, i)) {
      paintHalf(i, box);
      return 1;
    }
    const int middle = box.height() / 2;
    paintHalf(i, {box.left, 0, box.right, middle});
    paintHalf(i + 1, {box.left, middle, box.right, box.bottom});
    return 2;
  }

  void paintHalf(std::size_t i, const Box& box) {
    if (box.right <= canvas_.left() || box.left >= canvas_.right()) return;
    const bool marked = view_.isHighlighted(i, i + 1);
    Fill fill = fillOf(i);
    if (view_.dims && !marked) fill = look_.dimmed(fill);
    canvas_.fill(box, fill);
    // By its real width, so that blocks of one duration look alike.
    const double width = static_cast<double>(track_.end[i] - track_.start[i]) / columns_.nsPerColumn;
    if (width >= 3.5) {
      const QRgb edge = mixed(fill.base, look_.background(), width >= 8 ? 1.0 : 0.5);
      canvas_.fill(Box{box.right - 1, box.top, box.right, box.bottom}, edge);
      if (box.top > 0) canvas_.fill(Box{box.left, box.top, box.right, box.top + 1}, edge);
    }
    if (box.width() >= 9 && box.height() >= 9) {
      for (const int x : {box.left, box.right - 2}) {
        for (const int y : {box.top == 0 ? 0 : box.top + 1, box.bottom - 1})
          canvas_.fill(Box{x, y, x + 1, y + 1}, mixed(fill.base, look_.background(), 0.7));
      }
    }
    if (marked && !view_.dims)
      canvas_.frame({box.left, box.top, std::max(box.left + 1, box.right - (box.width() >= 3 ? 1 : 0)), box.bottom}, 2, look_.highlight());
    if (box.width() <= kWidestLabelled) paintLabel(track_.tags[i], box, fill, view_.dims && !marked);
  }

  /// The largest glyphs with which nearly all blocks of a kind have room for the longest label, a column less than they are wide where
  /// edges are rounded; null: they have none.
  [[nodiscard]] const Glyphs* fitting(const BlockSizes& sizes, std::size_t kind) const {
    const double width = static_cast<double>(sizes.least[kind]) / columns_.nsPerColumn - 1;
    for (const Glyphs* glyphs : {&glyphs_.usual, &glyphs_.small}) {
      if (glyphs->width(sizes.longest[kind]) + 5 <= width) return glyphs;
    }
    return nullptr;
  }

  void paintLabel(const SpanTag& tag, const Box& box, const Fill& fill, bool faint) {
    const Glyphs* const largest = glyphsOf_[indexOf(tag.kind)];
    if (box.width() < 12 || largest == nullptr) return;
    const std::string label = labelOf(tag, view_.withStage);
    const Glyphs& glyphs = largest->width(label) + 5 <= box.width() && largest->height() + 3 <= box.height() ? *largest : glyphs_.small;
    const int width = glyphs.width(label);
    if (label.empty() || width + 4 > box.width() || glyphs.height() + 3 > box.height()) return;
    const int x = box.left + (box.width() - 1 - width) / 2, y = box.top + (box.height() - glyphs.height() + 1) / 2;
    if (x - 2 >= canvas_.right() || x + width + 2 <= canvas_.left()) return;
    if (fill.pattern != Qt::SolidPattern) canvas_.fill(Box{x - 2, y - 2, x + width + 2, y + glyphs.height() + 2}, fill.base);
    glyphs.draw(canvas_, x, y, label, faint ? mixed(fill.base, look_.text(), 0.45) : look_.textOn(fill));
  }

  /// Time of each kind in [from, to), where spans [first, next) start. Few are summed up, of many the summaries of their blocks tell.
  [[nodiscard]] KindTimes busyIn(Ns from, Ns to, std::size_t first, std::size_t next) {
    if (next - first <= SpanTrack::kBlock) return busyOfFew(track_, from, to, first, next);
    KindTimes busy;
    if (from != known_) before_ = upTo(from);
    const KindTimes after = upTo(to);
    for (std::size_t k = 0; k < kSpanKinds; ++k) busy[k] = after[k] - before_[k];
    before_ = after;
    known_ = to;
    return busy;
  }

  /// Time of each kind before `time`, where a column holds many spans: evenly spread over a block without much idle time in it.
  [[nodiscard]] KindTimes upTo(Ns time) {
    const auto& starts = track_.firstStart;
    if (starts[block_] > time || (block_ + 64 < starts.size() && starts[block_ + 64] <= time)) {
      const auto after = std::upper_bound(starts.begin(), starts.end(), time) - starts.begin();
      block_ = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after, 1) - 1);
    }
    while (block_ + 1 < starts.size() && starts[block_ + 1] <= time) ++block_;
    KindTimes sum = track_.busy[block_];
    const KindTimes& whole = track_.busy[block_ + 1];
    const Ns begin = starts[block_], end = block_ + 1 < starts.size() ? starts[block_ + 1] : track_.ownEnd[block_];
    if (time <= begin) return sum;
    Ns idle = end - begin;
    for (std::size_t k = 0; k < kSpanKinds; ++k) idle -= whole[k] - sum[k];
    if (static_cast<double>(idle) <= 0.1 * columns_.nsPerColumn && end > begin) {
      const double share = std::min(1.0, static_cast<double>(time - begin) / static_cast<double>(end - begin));
      for (std::size_t k = 0; k < kSpanKinds; ++k) sum[k] += static_cast<Ns>(static_cast<double>(whole[k] - sum[k]) * share);
      return sum;
    }
    const std::size_t last = std::min(track_.size(), (block_ + 1) * SpanTrack::kBlock);
    for (std::size_t i = block_ * SpanTrack::kBlock; i < last && track_.start[i] < time; ++i)
      addBusy(sum, track_, i, std::min(track_.end[i], time) - track_.start[i]);
    return sum;
  }

  /// A column with spans [first, next) that start in it (and what reaches into it).
  void paintColumn(int column, std::size_t first, std::size_t next) {
    if (column < canvas_.left() || column >= canvas_.right()) return;
    if (first > 0 && isWide(first - 1) && columns_.edge(track_.end[first - 1]) > column) return;  // a block has the column
    const KindTimes busy = busyIn(columns_.begin(column), columns_.begin(column + 1), first, next);
    const Stack stack = stackOf(busy, columns_.nsPerColumn, canvas_.height());
    if (stack.count == 0) return;
    const bool marked = view_.isHighlighted(first, next), isFaint = view_.dims && !marked;
    const std::size_t sample = first + (next - first) / 2;
    int y = canvas_.height();
    Fill dominant;
    Ns most = 0;
    for (std::size_t p = 0; p < stack.count; ++p) {
      const auto& [kind, height] = stack.parts[p];
      SpanTag tag = track_.tags[sample];
      if (kind != SpanKind::ReduceGrad) tag.kind = kind;
      Fill fill = view_.predictedOf != nullptr ? fillOf(sample)
                  : kind == tag.kind           ? look_.of(tag)
                                               : look_.of({kind, Stage(-1), Microbatch(-1), {}});
      canvas_.column(column, y - height, y, isFaint ? look_.dimmed(fill) : fill);
      y -= height;
      if (busy[indexOf(kind)] > most) {
        most = busy[indexOf(kind)];
        dominant = fill;
      }
    }
    const QRgb baseLine = look_.ofBaseLine(dominant);
    const int mark = canvas_.height() < 10 ? 1 : std::max(2, canvas_.height() / 12);
    canvas_.column(column, canvas_.height() - mark, canvas_.height(), isFaint ? look_.dimmed(Fill{baseLine}).base : baseLine);
    if (marked && !view_.dims) canvas_.column(column, 0, mark + 1, look_.highlight());
  }

  Canvas& canvas_;
  const Columns& columns_;
  const TrackView& view_;
  const SpanTrack& track_;
  const Look& look_;
  const LabelGlyphs& glyphs_;
  std::array<const Glyphs*, kSpanKinds> glyphsOf_{};  ///< by kind; null: no labels
  KindTimes before_{};                                ///< up to `known_`
  Ns known_ = std::numeric_limits<Ns>::min();
  std::size_t block_ = 0;  ///< of the time requested last
};

/// Messages narrower than a column that start in one, by lane.
struct NarrowMessages {
  std::array<Ns, 3> time{};
  std::array<SpanTag, 3> tags;

  void add(const SpanTrack& track, std::size_t i) {
    if (track.end[i] <= track.start[i]) return;
    const auto lane = static_cast<std::size_t>(messageLane(track.tags[i].kind));
    time[lane] += track.end[i] - track.start[i];
    tags[lane] = track.tags[i];
  }
  /// Spans [first, last) of one block, all narrow: each kind takes about their share of the block's time.
  void addOfBlock(const SpanTrack& track, std::size_t first, std::size_t last) {
    const std::size_t block = first / SpanTrack::kBlock;
    for (const SpanKind kind : {SpanKind::SendForward, SpanKind::SendBackward, SpanKind::ReduceGrad}) {
      const Ns busy = track.busy[block + 1][indexOf(kind)] - track.busy[block][indexOf(kind)];
      if (busy <= 0) continue;
      const auto lane = static_cast<std::size_t>(messageLane(kind));
      if (time[lane] == 0) tags[lane] = track.tags[first].kind == kind ? track.tags[first] : SpanTag{kind, Stage(-1), Microbatch(-1), {}};
      time[lane] += std::max<Ns>(1, busy * (last - first) / SpanTrack::kBlock);
    }
  }
};

}  // namespace

BlockSizes blockSizesOf(const SpanTrack& track, bool withStage) {
  BlockSizes sizes;
  std::array<std::vector<Ns>, kSpanKinds> durations;
  std::array<std::size_t, kSpanKinds> longest{};
  std::array<int, kSpanKinds> most{};  // digits of stage and microbatch
  const auto digits = [](int number) { return number < 0 ? 0 : number < 10 ? 1 : number < 100 ? 2 : number < 1'000 ? 3 : 4; };
  for (std::size_t i = 0; i < track.size(); ++i) {
    const SpanTag& tag = track.tags[i];
    const std::size_t kind = indexOf(tag.kind);
    durations[kind].push_back(track.end[i] - track.start[i]);
    const int length = 1 + digits(tag.microbatch.value) + (withStage ? digits(tag.stage.value) : 0);
    if (length > most[kind]) longest[kind] = i;
    most[kind] = std::max(most[kind], length);
  }
  for (std::size_t kind = 0; kind < kSpanKinds; ++kind) {
    if (durations[kind].empty()) continue;
    const auto tenth = durations[kind].begin() + static_cast<std::ptrdiff_t>(durations[kind].size() / 10);
    std::ranges::nth_element(durations[kind], tenth);
    sizes.least[kind] = *tenth;
    sizes.longest[kind] = labelOf(track.tags[longest[kind]], withStage);
  }
  return sizes;
}

bool TrackView::isHighlighted(std::size_t first, std::size_t last) const {
  if (highlighted.empty()) return false;
  const auto found = std::lower_bound(highlighted.begin(), highlighted.end(), first,
                                      [](const SourcedSpan& s, std::size_t i) { return static_cast<std::size_t>(s.span.index) < i; });
  return found != highlighted.end() && static_cast<std::size_t>(found->span.index) < last;
}

void paintCompute(Canvas& canvas, const Columns& columns, const TrackView& view, Ns end, const Look& look, const LabelGlyphs& glyphs) {
  ComputePainter(canvas, columns, view, look, glyphs).paint(end);
}

void paintOutlines(Canvas& canvas, const Columns& columns, const SpanTrack& predicted, const Look& look) {
  const auto [first, last] = visible(predicted, columns.begin(canvas.left()) - 1, columns.begin(canvas.right()) + 1);
  // Where there are more than pixels, outlines would hide all.
  if (static_cast<double>(last - first) > 0.5 * (canvas.right() - canvas.left()) + 8) return;
  const QRgb colour = mixed(look.text(), look.background(), 0.1), inner = mixed(look.text(), look.background(), 0.8);
  for (std::size_t i = first; i < last; ++i) {
    const Box box{columns.edge(predicted.start[i]), 0, columns.edge(predicted.end[i]), canvas.height()};
    if (box.width() < 4) continue;
    canvas.frame({box.left, 0, box.right - 1, box.bottom}, 1, colour);
    // A light line within the dark one shows on any colour.
    if (box.width() >= 8) canvas.frame({box.left + 1, 1, box.right - 2, box.bottom - 1}, 1, inner);
  }
}

void paintMessages(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look) {
  const SpanTrack& track = *view.track;
  const int lanes = messageLanes(track);
  const Ns from = columns.begin(canvas.left()) - 1;
  auto [i, last] = visible(track, from, columns.begin(canvas.right()) + 1);
  const auto fillOf = [&](const SpanTag& tag, bool marked) { return view.dims && !marked ? look.dimmed(look.of(tag)) : look.of(tag); };
  const auto isWide = [&](std::size_t s) { return static_cast<double>(track.end[s] - track.start[s]) >= columns.nsPerColumn; };
  const auto paintBlock = [&](std::size_t s) {
    const auto [top, bottom] = messageLaneLines(messageLane(track.tags[s].kind), lanes, canvas.height());
    const Box box{columns.edge(track.start[s]), top, columns.edge(track.end[s]), bottom};
    if (box.right <= canvas.left() || box.left >= canvas.right()) return;
    const bool marked = view.isHighlighted(s, s + 1);
    const Fill fill = fillOf(track.tags[s], marked);
    canvas.fill(box, fill);
    if (box.width() >= 4) canvas.fill(Box{box.left, top, box.left + 1, bottom}, mixed(fill.base, look.text(), 0.5));
    if (marked && !view.dims) canvas.frame(box, 1, look.highlight());
  };
  while (i < last) {
    const std::size_t block = i / SpanTrack::kBlock;
    if (track.start[i] < from && track.ownEnd[block] <= from) {  // only spans before the columns here
      i = (block + 1) * SpanTrack::kBlock;
      continue;
    }
    if (track.start[i] < from || isWide(i)) {
      if (isWide(i)) paintBlock(i);
      ++i;
      continue;
    }
    const int column = static_cast<int>(std::floor(columns.exact(track.start[i])));
    const std::size_t next = std::max(i + 1, firstFrom(track, columns.begin(column + 1), i));
    const bool marked = view.isHighlighted(i, next);
    // Wide ones that start in the column, and which lanes have narrow ones.
    NarrowMessages narrow;
    for (std::size_t s = i; s < next;) {
      const std::size_t b = s / SpanTrack::kBlock, after = std::min(next, (b + 1) * SpanTrack::kBlock);
      const Ns start =
          s == b * SpanTrack::kBlock ? track.firstStart[b] : track.start[s];  // of many blocks nothing but the summaries is read
      if (after - s > 4 && static_cast<double>(track.ownEnd[b]) < static_cast<double>(start) + columns.nsPerColumn) {
        narrow.addOfBlock(track, s, after);
        s = after;
        continue;
      }
      if (isWide(s))
        paintBlock(s);
      else
        narrow.add(track, s);
      ++s;
    }
    for (std::size_t lane = 0; lane < 3; ++lane) {
      if (narrow.time[lane] == 0) continue;
      // A message that takes a tenth of the column is seen, but fainter than one that fills it.
      const double share = 0.35 + 0.65 * std::min(1.0, static_cast<double>(narrow.time[lane]) / columns.nsPerColumn);
      const auto [top, bottom] = messageLaneLines(static_cast<int>(lane), lanes, canvas.height());
      canvas.column(column, top, bottom, mixed(look.background(), fillOf(narrow.tags[lane], marked).base, share));
      if (marked && !view.dims) canvas.column(column, top, top + 1, look.highlight());
    }
    i = next;
  }
}

bool hasWideBlocks(const Columns& columns, const SpanTrack& track) {
  const auto [first, last] = visible(track, columns.begin(0), columns.begin(columns.width));
  if (static_cast<double>(last - first) > columns.width) return false;  // too many for a label each
  for (std::size_t i = first; i < last; ++i) {
    if (static_cast<double>(track.end[i] - track.start[i]) > (kWidestLabelled - 1) * columns.nsPerColumn) return true;
  }
  return false;
}

void paintWideLabels(Canvas& canvas, const Columns& columns, const TrackView& view, const Look& look, const Glyphs& glyphs) {
  const SpanTrack& track = *view.track;
  const auto [first, last] = visible(track, columns.begin(0), columns.begin(columns.width));
  for (std::size_t i = first; i < last; ++i) {
    const int left = columns.edge(track.start[i]), right = columns.edge(track.end[i]);
    if (right - left <= kWidestLabelled) continue;
    const std::string label = labelOf(track.tags[i], view.withStage);
    const int width = glyphs.width(label);
    const bool second = i > 0 && isSlotAt(track, i - 1), half = second || isSlotAt(track, i);
    const int top = second ? canvas.height() / 2 : 0, height = half ? canvas.height() / 2 : canvas.height();
    const int shownLeft = std::max(left, 0), shownRight = std::min(right, columns.width);
    if (label.empty() || shownRight - shownLeft < width + 8 || height < glyphs.height() + 3) continue;
    const int x = (shownLeft + shownRight - 1 - width) / 2, y = top + (height - glyphs.height() + 1) / 2;
    const bool faint = view.dims && !view.isHighlighted(i, i + 1);
    const Fill fill = faint ? look.dimmed(look.of(track.tags[i])) : look.of(track.tags[i]);
    if (view.predictedOf == nullptr) canvas.fill(Box{x - 2, y - 2, x + width + 2, y + glyphs.height() + 2}, fill.base);
    glyphs.draw(canvas, x, y, label,
                faint                         ? mixed(fill.base, look.text(), 0.45)
                : view.predictedOf == nullptr ? look.textOn(fill)
                                              : look.text());
  }
}

}  // namespace pw::gui
