#pragma once

#include "schedules/ids.h"

namespace pw::gui {

/// Which time a pixel shows: pixel x (0 … width) shows `start + x · nsPerPixel`. A value; every function is pure.
struct Viewport {
  double start = 0;       ///< [ns], may be negative or beyond the end by a margin
  double nsPerPixel = 1;  ///< > 0
  int width = 1;          ///< pixels

  [[nodiscard]] double xOf(Ns time) const { return (static_cast<double>(time) - start) / nsPerPixel; }
  [[nodiscard]] Ns timeOf(double x) const { return static_cast<Ns>(start + x * nsPerPixel); }
  [[nodiscard]] double end() const { return start + width * nsPerPixel; }

  bool operator==(const Viewport&) const = default;
};

/// Shows [from, to) with `margin` pixels on both sides.
[[nodiscard]] Viewport fitted(Ns from, Ns to, int width, int margin = 8);
/// Zooms by `factor` (< 1: closer), keeping the time under pixel x. Stays between 1/64 ns per pixel and 4 · `end` over the width.
[[nodiscard]] Viewport zoomed(const Viewport& view, double x, double factor, Ns end);
/// Moved by pixels (> 0: later); at least a tenth of the width keeps showing [0, end].
[[nodiscard]] Viewport panned(const Viewport& view, double pixels, Ns end);
/// Moved so far that [from, to) is in sight: where it is not, it comes into the middle; of what is longer than nine tenths of the width the
/// beginning, a tenth from the left, and only where nothing of it is in sight.
[[nodiscard]] Viewport revealing(const Viewport& view, Ns from, Ns to);
/// Round step of ruler ticks (1, 2, 5 · 10^k ns) at least `pixels` apart.
[[nodiscard]] Ns tickStep(const Viewport& view, int pixels = 90);

}  // namespace pw::gui
