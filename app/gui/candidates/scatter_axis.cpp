#include "app/gui/candidates/scatter_axis.h"

#include <algorithm>
#include <cmath>

namespace pw::gui {

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
  double unit = 1;
  while (bytes && (to_ - from_) / unit >= 1024) unit *= 1024;
  const double least = (to_ - from_) / unit / std::max(1, most - 1);
  double step = std::pow(10.0, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0, 10.0}) {
    if (step * factor < least) continue;
    step *= factor;
    break;
  }
  if (bytes && unit == 1) step = std::max(1.0, step);  // no parts of a byte
  step *= unit;
  std::vector<double> ticks;
  for (double i = std::ceil(from_ / step); i * step <= to_; ++i) ticks.push_back(i * step);
  return ticks;
}

}  // namespace pw::gui
