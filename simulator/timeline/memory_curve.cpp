#include "simulator/timeline/memory_curve.h"

#include <algorithm>
#include <cmath>

namespace pw {

std::vector<FigurePoint> memoryCurve(const Trace& trace, Rank rank, const TimeRange& times, Bytes most, const FigureBox& box) {
  constexpr double kColumn = 0.1;
  const auto columns = static_cast<std::size_t>(std::ceil(box.width / kColumn));
  std::vector<Bytes> peaks(columns, 0);
  const auto columnOf = [&](Ns time) {
    const double share = static_cast<double>(time - times.from) / static_cast<double>(times.to - times.from);
    return std::min(columns - 1, static_cast<std::size_t>(std::max(0.0, share * box.width / kColumn)));
  };
  const auto first = std::ranges::lower_bound(trace.memory, rank, {}, &MemorySample::rank);
  const auto last = std::ranges::upper_bound(trace.memory, rank, {}, &MemorySample::rank);
  if (first == last || most <= 0) return {};
  for (auto sample = first; sample != last; ++sample) {
    const Ns until = sample + 1 == last ? times.to : std::min((sample + 1)->time, times.to);
    if (until < times.from || sample->time >= times.to) continue;
    const std::size_t from = columnOf(std::max(sample->time, times.from)), to = columnOf(std::max(until, times.from));
    for (std::size_t c = from; c <= to; ++c) {
      if (c < to || c == from) peaks[c] = std::max(peaks[c], sample->bytes);
    }
  }
  const double bottom = box.y + box.height;
  std::vector<FigurePoint> outline{{box.x, bottom}};
  for (std::size_t c = 0; c < columns; ++c) {
    const double y = bottom - box.height * static_cast<double>(peaks[c]) / static_cast<double>(most);
    const double left = box.x + static_cast<double>(c) * kColumn;
    if (std::abs(outline.back().y - y) < 0.005) continue;
    outline.push_back({left, outline.back().y});
    outline.push_back({left, y});
  }
  outline.push_back({box.x + box.width, outline.back().y});
  outline.push_back({box.x + box.width, bottom});
  return outline;
}

}  // namespace pw
