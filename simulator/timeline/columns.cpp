#include "simulator/timeline/columns.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "simulator/trace/span_kind.h"

namespace pw {
namespace {

constexpr int kLevels = 24;

/// Where a kind is in a column, in levels from the bottom of the row.
struct Band {
  int from = 0, until = 0;
  bool operator==(const Band&) const = default;
};

using Shares = std::array<float, kSpanKinds>;

std::vector<Shares> sharesOf(const std::vector<NarrowSpan>& spans, std::size_t columns, double column) {
  std::vector<Shares> shares(columns);
  for (const NarrowSpan& span : spans) {
    const double begin = std::max(0.0, span.from / column), end = span.to / column;
    const auto last = std::min(columns, static_cast<std::size_t>(end) + 1);
    for (auto c = static_cast<std::size_t>(begin); c < last; ++c) {
      const double share = std::min(end, static_cast<double>(c + 1)) - std::max(begin, static_cast<double>(c));
      shares[c][static_cast<std::size_t>(span.kind)] += static_cast<float>(std::max(share, 1e-6));
    }
  }
  return shares;
}

}  // namespace

std::vector<FigureMerged> mergeColumns(const std::vector<NarrowSpan>& spans, const FigureBox& row, double column) {
  if (spans.empty()) return {};
  const auto columns = static_cast<std::size_t>(std::ceil(row.width / column));
  const std::vector<Shares> shares = sharesOf(spans, columns, column);
  std::array<FigureMerged, kSpanKinds> kinds;
  std::array<Band, kSpanKinds> bands{};
  std::array<std::size_t, kSpanKinds> starts{};
  for (std::size_t c = 0; c <= columns; ++c) {
    double sum = 0;
    for (std::size_t k = 0; k < kSpanKinds; ++k) {
      const double share = c < columns ? static_cast<double>(shares[c][k]) : 0;
      Band band{static_cast<int>(std::lround(std::min(sum, 1.0) * kLevels)),
                static_cast<int>(std::lround(std::min(sum + share, 1.0) * kLevels))};
      if (share > 0 && sum == 0) band.until = std::max(band.until, 1);  // a single short action stays visible
      sum += share;
      if (band.from == band.until) band = {};
      if (band == bands[k]) continue;
      const Band& old = bands[k];
      if (old.until > old.from) {
        const double left = static_cast<double>(starts[k]) * column, right = std::min(static_cast<double>(c) * column, row.width);
        kinds[k].boxes.push_back({row.x + left, row.y + row.height - row.height * old.until / kLevels, right - left,
                                  row.height * (old.until - old.from) / kLevels});
      }
      bands[k] = band;
      starts[k] = c;
    }
  }
  std::vector<FigureMerged> merged;
  for (std::size_t k = 0; k < kSpanKinds; ++k) {
    kinds[k].kind = static_cast<SpanKind>(k);
    if (!kinds[k].boxes.empty()) merged.push_back(std::move(kinds[k]));
  }
  return merged;
}

}  // namespace pw
