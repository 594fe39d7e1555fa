#include <algorithm>
#include <cmath>
#include <limits>

#include "app/gui/timeline/drawing/memory_painter.h"
#include "app/gui/timeline/drawing/track_painter.h"

namespace pw::gui {
namespace {

/// Lines of an image from its bottom for so many bytes.
int lineOf(Bytes bytes, const MemoryLane& lane, int height) {
  return height - 1 - static_cast<int>(std::lround(static_cast<double>(bytes) / static_cast<double>(lane.top) * (height - 3)));
}

/// Least and most of samples [first, last); where those are many, also of what lies in a block with them.
std::pair<Bytes, Bytes> extremesOf(const MemoryTrack& track, std::size_t first, std::size_t last) {
  constexpr std::size_t kBlock = MemoryTrack::kBlock;
  if (last - first > 4 * kBlock) {
    first -= first % kBlock;
    last = std::min(track.bytes.size(), (last + kBlock - 1) / kBlock * kBlock);
  }
  Bytes least = std::numeric_limits<Bytes>::max(), most = std::numeric_limits<Bytes>::min();
  while (first < last) {
    if (first % kBlock == 0 && std::min(first + kBlock, track.bytes.size()) <= last) {
      const auto& [low, high] = track.extremes[first / kBlock];
      least = std::min(least, low);
      most = std::max(most, high);
      first += kBlock;
    } else {
      least = std::min(least, track.bytes[first]);
      most = std::max(most, track.bytes[first]);
      ++first;
    }
  }
  return {least, most};
}

/// The first sample later than `time`, searched for from `hint` on.
std::size_t sampleAfter(const MemoryTrack& track, Ns time, std::size_t hint) {
  constexpr std::size_t kBlock = MemoryTrack::kBlock;
  std::size_t block = hint / kBlock;
  if (block + 16 < track.firstTime.size() && track.firstTime[block + 16] <= time) {
    block = static_cast<std::size_t>(std::upper_bound(track.firstTime.begin(), track.firstTime.end(), time) - track.firstTime.begin()) - 1;
  }
  while (block + 1 < track.firstTime.size() && track.firstTime[block + 1] <= time) ++block;
  const auto from = track.time.begin() + static_cast<std::ptrdiff_t>(std::max(hint, block * kBlock));
  const auto to = track.time.begin() + static_cast<std::ptrdiff_t>(std::min((block + 1) * kBlock, track.time.size()));
  return static_cast<std::size_t>(std::upper_bound(from, to, time) - track.time.begin());
}

}  // namespace

void paintMemory(Canvas& canvas, const Columns& columns, const MemoryLane& lane, const Look& look) {
  const MemoryTrack& track = *lane.track;
  if (track.time.empty()) return;
  const int height = canvas.height();
  const QRgb accent = look.theme().accent.rgb(), error = look.theme().error.rgb();
  const QRgb area = mixed(look.background(), accent, 0.22), excess = mixed(look.background(), error, 0.55);
  const int limitLine = lane.limit > 0 ? lineOf(lane.limit, lane, height) : -1;
  const int left = std::max(canvas.left(), columns.edge(track.time.front())), right = std::min(canvas.right(), columns.edge(lane.end));
  std::size_t after = 0;  // first sample after the column
  int lastLine = -1;
  for (int column = left - 1; column < right; ++column) {
    const Ns from = columns.begin(column), to = columns.begin(column + 1);
    const std::size_t next = sampleAfter(track, from, after > 0 ? after - 1 : 0);
    after = sampleAfter(track, std::max(from, to - 1), next > 0 ? next - 1 : 0);
    const auto [least, most] = extremesOf(track, next > 0 ? next - 1 : 0, std::max<std::size_t>(after, 1));
    const int top = lineOf(most, lane, height), bottom = lineOf(least, lane, height);
    const int ending = lineOf(track.bytes[after > 0 ? after - 1 : 0], lane, height);
    if (column >= left) {
      if (lane.filled) {
        canvas.column(column, top, height, area);
        if (limitLine >= 0 && top < limitLine) canvas.column(column, top, limitLine, excess);
      }
      const int first = lastLine < 0 ? top : std::min(top, lastLine),
                last = lastLine < 0 ? bottom : std::max(bottom, std::min(lastLine, height - 1));
      const QRgb stroke = lane.filled ? accent : mixed(look.text(), look.background(), 0.25);
      canvas.column(column, first, last + 1, stroke);
      if (limitLine >= 0 && first < limitLine && lane.filled) canvas.column(column, first, std::min(last + 1, limitLine), error);
    }
    lastLine = ending;
  }
}

void paintLimit(Canvas& canvas, const Columns& columns, const MemoryLane& lane, const Look& look) {
  if (lane.limit <= 0 || lane.limit > lane.top) return;
  const int line = lineOf(lane.limit, lane, canvas.height());
  const QRgb error = look.theme().error.rgb();
  canvas.fill(Box{canvas.left(), 0, canvas.right(), line}, mixed(look.background(), error, 0.10));
  for (int x = canvas.left(); x < canvas.right(); ++x) {
    if (((x + columns.offset) & 7) < 5) canvas.fill(Box{x, line, x + 1, line + 1}, error);
  }
}

}  // namespace pw::gui
