#include "app/gui/candidates/scatter_axis.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pw::gui {

namespace {

/// In which values of such a range are written.
double unitOf(double range, bool bytes) {
  constexpr double kMinute = 60e9, kHour = 3600e9;  // ns
  if (!bytes) return range >= 2 * kHour ? kHour : range >= 2 * kMinute ? kMinute : 1;
  double unit = 1;
  while (range / unit >= 1024) unit *= 1024;
  return unit;
}

}  // namespace

ScatterAxis ScatterAxis::over(const std::vector<double>& values) {
  ScatterAxis axis;
  if (values.empty()) return axis;
  const auto [least, most] = std::ranges::minmax(values);
  const double span = most > least ? most - least : std::max(1.0, most);
  axis.from_ = std::max(0.0, least - 0.08 * span);
  axis.to_ = most + 0.08 * span;
  return axis;
}

std::vector<double> ScatterAxis::ticks(int most, bool bytes) const {
  const double unit = unitOf(to_ - from_, bytes);
  const double least = (to_ - from_) / unit / std::max(1, most - 1);
  double step = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step * factor < least) continue;
    step *= factor;
    break;
  }
  const double finest = bytes && unit == 1 ? 1 : 0;  // no parts of a byte
  const auto at = [&](double distance) {
    std::vector<double> ticks;
    for (double i = std::ceil(from_ / distance); i * distance <= to_; ++i) ticks.push_back(i * distance);
    return ticks;
  };
  step = std::max(finest, step);
  std::vector<double> ticks = at(step * unit);
  while (ticks.size() < static_cast<std::size_t>(most)) {  // a short range may lie between two of them
    const double digits = step / std::pow(10.0, std::floor(std::log10(step) + 1e-9));
    step *= digits > 4 ? 0.4 : 0.5;
    if (step < finest) break;
    std::vector<double> more = at(step * unit);
    if (more.size() <= static_cast<std::size_t>(most)) {
      ticks = std::move(more);
      continue;
    }
    if (ticks.size() < 2) ticks = {more.front(), more.back()};  // one alone does not tell the scale
    break;
  }
  return ticks;
}

}  // namespace pw::gui
