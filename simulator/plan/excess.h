#pragma once

#include <algorithm>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// By how much the peak of a rank exceeds its limit [bytes]; 0 where it does not, or has none (limit 0).
[[nodiscard]] inline Bytes excessOf(Bytes peak, Bytes limit) { return limit > 0 ? std::max<Bytes>(0, peak - limit) : 0; }

/// Of the rank with the largest excess; ranks beyond the list of limits have none.
[[nodiscard]] inline Bytes excessOf(const std::vector<Bytes>& peaks, const std::vector<Bytes>& limits) {
  Bytes most = 0;
  for (std::size_t r = 0; r < std::min(peaks.size(), limits.size()); ++r) most = std::max(most, excessOf(peaks[r], limits[r]));
  return most;
}

}  // namespace pw
