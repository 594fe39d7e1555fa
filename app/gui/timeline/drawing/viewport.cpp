#include "app/gui/timeline/drawing/viewport.h"

#include <algorithm>
#include <cmath>

namespace pw::gui {
namespace {

constexpr double kClosest = 1.0 / 64;  ///< ns per pixel

double farthest(Ns end, int width) { return std::max(kClosest, 4.0 * static_cast<double>(std::max<Ns>(end, 1)) / std::max(1, width)); }

/// Where a view may begin: a tenth of the width at least shows the timeline.
double kept(double start, double nsPerPixel, int width, Ns end) {
  const double showing = 0.1 * width * nsPerPixel;
  return std::clamp(start, showing - width * nsPerPixel, std::max(showing - width * nsPerPixel, static_cast<double>(end) - showing));
}

}  // namespace

Viewport fitted(Ns from, Ns to, int width, int margin) {
  const int inner = std::max(1, width - 2 * margin);
  const double nsPerPixel = std::max(kClosest, static_cast<double>(std::max<Ns>(1, to - from)) / inner);
  // What is shorter than the closest zoom stands in the middle.
  const double shift = std::max(0.0, inner * nsPerPixel - static_cast<double>(to - from)) / 2;
  return {static_cast<double>(from) - shift - margin * nsPerPixel, nsPerPixel, std::max(1, width)};
}

Viewport zoomed(const Viewport& view, double x, double factor, Ns end) {
  const double nsPerPixel = std::clamp(view.nsPerPixel * factor, kClosest, farthest(end, view.width));
  const double time = view.start + x * view.nsPerPixel;
  return {time - x * nsPerPixel, nsPerPixel, view.width};
}

Viewport panned(const Viewport& view, double pixels, Ns end) {
  const double limit = kept(view.start + pixels * view.nsPerPixel, view.nsPerPixel, view.width, end);
  // Whole pixels stay whole, so that what is painted can be moved.
  const double moved = (limit - view.start) / view.nsPerPixel;
  const double whole = pixels == std::round(pixels) ? std::trunc(moved + (moved < 0 ? -1e-6 : 1e-6)) : moved;
  return {view.start + whole * view.nsPerPixel, view.nsPerPixel, view.width};
}

Viewport revealing(const Viewport& view, Ns from, Ns to) {
  const double length = static_cast<double>(to - from), shown = view.end() - view.start;
  Viewport next = view;
  if (length > 0.9 * shown) {
    if (static_cast<double>(to) > view.start && static_cast<double>(from) < view.end()) return view;
    next.start = static_cast<double>(from) - 0.1 * shown;
  } else if (static_cast<double>(from) < view.start || static_cast<double>(to) > view.end()) {
    next.start = static_cast<double>(from) + length / 2 - shown / 2;
  }
  return next;
}

Ns tickStep(const Viewport& view, int pixels) {
  const double least = view.nsPerPixel * pixels;
  for (Ns step = 1;; step *= 10) {
    for (const int factor : {1, 2, 5}) {
      if (static_cast<double>(step * factor) >= least || step > 400'000'000'000'000'000) return step * factor;
    }
  }
}

}  // namespace pw::gui
