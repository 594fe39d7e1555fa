#include "simulator/timeline/time_ruler.h"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

namespace pw {
namespace {

struct Unit {
  std::string_view name;
  Ns ns;
};
constexpr std::array<Unit, 4> kUnits{{{"ns", 1}, {"µs", 1'000}, {"ms", 1'000'000}, {"s", 1'000'000'000}}};

/// The largest unit in which a step is at least a hundredth.
Unit unitOf(Ns end) {
  Unit unit = kUnits.front();
  for (const Unit& larger : kUnits) {
    if (end >= larger.ns) unit = larger;
  }
  return unit;
}

std::string tickLabel(Ns time, Unit unit) {
  return time == 0 ? "0" : fmt::format("{:g} {}", static_cast<double>(time) / static_cast<double>(unit.ns), unit.name);
}

/// 1, 2 or 5 times a power of ten, so that there are at most `count` in `length`.
Ns stepFor(Ns length, std::int64_t count) {
  Ns step = 1;
  while (length / step > count) {
    for (const int factor : {2, 5, 10}) {
      if (length / (step * factor) <= count) return step * factor;
    }
    step *= 10;
  }
  return step;
}

}  // namespace

TimeRuler rulerOf(const TimeRange& times, const std::function<double(std::string_view)>& width, double length) {
  const Unit unit = unitOf(times.to);
  const Ns all = times.to - times.from;
  TimeRuler ruler;
  for (std::int64_t count = 20; count >= 1; --count) {
    const Ns step = stepFor(all, count);
    ruler.ticks.clear();
    double widest = 0;
    for (Ns time = (times.from + step - 1) / step * step; time <= times.to; time += step) {
      ruler.ticks.emplace_back(time, tickLabel(time, unit));
      widest = std::max(widest, width(ruler.ticks.back().second));
      if (time > std::numeric_limits<Ns>::max() - step) break;
    }
    const double distance = static_cast<double>(step) / static_cast<double>(all) * length;
    if (distance >= 1.6 * widest) break;
  }
  return ruler;
}

}  // namespace pw
