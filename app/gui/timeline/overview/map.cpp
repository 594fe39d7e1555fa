#include "app/gui/timeline/overview/map.h"

#include <algorithm>
#include <cmath>

namespace pw::gui {
namespace {

constexpr int kLeastWidth = 8, kLeastHeight = 5;  ///< of the window
constexpr int kEdge = 4;                          ///< pixels around an edge that take it

/// [begin, end) made at least `least` long, within [low, high).
std::pair<int, int> widened(double begin, double end, int least, int low, int high) {
  int from = static_cast<int>(std::lround(begin)), to = static_cast<int>(std::lround(end));
  if (to - from < least) {
    from = static_cast<int>(std::lround((begin + end - least) / 2));
    to = from + least;
  }
  if (to > high) from -= to - high, to = high;
  if (from < low) to = std::min(high, to + low - from), from = low;
  return {from, to};
}

}  // namespace

QRect OverviewMap::window() const {
  const auto x = [&](double time) { return area.left() + std::clamp(time / static_cast<double>(end), 0.0, 1.0) * area.width(); };
  const auto y = [&](double line) { return area.top() + std::clamp(line / lines, 0.0, 1.0) * area.height(); };
  const auto [left, right] = widened(x(from), x(to), std::min(kLeastWidth, area.width()), area.left(), area.left() + area.width());
  const double first = visible >= lines ? 0 : scroll + pinned;
  const auto [top, bottom] =
      widened(y(first), y(scroll + visible), std::min(kLeastHeight, area.height()), area.top(), area.top() + area.height());
  return {left, top, right - left, bottom - top};
}

double OverviewMap::timeAt(double x) const { return (x - area.left()) / std::max(1, area.width()) * static_cast<double>(end); }

int OverviewMap::scrollAt(double y) const {
  const double line = (y - area.top()) / std::max(1, area.height()) * lines;
  return static_cast<int>(std::lround(std::clamp(line - pinned, 0.0, std::max(0.0, static_cast<double>(lines - visible)))));
}

OverviewMap::Part OverviewMap::partAt(const QPoint& at) const {
  const QRect shown = window();
  const int edge = std::min(kEdge, shown.width() / 4);
  if (at.y() < shown.top() || at.y() > shown.bottom()) return Part::Outside;
  if (std::abs(at.x() - shown.left()) <= edge) return Part::LeftEdge;
  if (std::abs(at.x() - shown.right()) <= edge) return Part::RightEdge;
  return shown.contains(at) ? Part::Window : Part::Outside;
}

bool OverviewMap::isAllVisible() const { return from <= 0 && to >= static_cast<double>(end) && visible >= lines; }

std::pair<double, double> OverviewMap::movedTo(double start) const {
  const double length = to - from, slack = static_cast<double>(end) - length;
  const double kept = slack <= 0 ? slack / 2 : std::clamp(start, 0.0, slack);
  return {kept, kept + length};
}

std::pair<double, double> OverviewMap::withEdgeAt(Part edge, double x) const {
  const double least = static_cast<double>(end) / std::max(1, area.width());
  const double time = std::clamp(timeAt(x), 0.0, static_cast<double>(end));
  if (edge == Part::LeftEdge) return {std::min(time, to - least), to};
  return {from, std::max(time, from + least)};
}

std::pair<double, double> OverviewMap::zoomedAt(double x, double factor) const {
  const double time = timeAt(x), length = std::min((to - from) * factor, std::max(to - from, static_cast<double>(end)));
  const double share = std::clamp((time - from) / (to - from), 0.0, 1.0);
  OverviewMap next = *this;
  next.from = time - share * length;
  next.to = next.from + length;
  return next.movedTo(next.from);
}

OverviewMap overviewOf(const Geometry& timeline, const QRect& area) {
  OverviewMap map;
  map.area = area;
  map.end = std::max<Ns>(1, endOf(timeline.scene));
  map.lines = std::max(1, timeline.layout.height);
  map.pinned = timeline.layout.pinnedHeight;
  map.visible = std::max(1, timeline.tracks().height());
  map.scroll = timeline.scroll;
  map.from = timeline.view.start;
  map.to = timeline.view.end();
  return map;
}

}  // namespace pw::gui
