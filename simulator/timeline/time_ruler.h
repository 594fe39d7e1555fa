#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/timeline/figure_style.h"

namespace pw {

/// The round times of a time axis.
struct TimeRuler {
  std::vector<std::pair<Ns, std::string>> ticks;  ///< `5 ms`; all in one unit
};

/// Multiples of 1, 2 or 5 times a power of ten within `times`, as many as there is room for on an axis of that length, at least one.
/// `width`: of a text, in the unit of `length`.
[[nodiscard]] TimeRuler rulerOf(const TimeRange& times, const std::function<double(std::string_view)>& width, double length);

}  // namespace pw
