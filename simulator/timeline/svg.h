#pragma once

#include <cstdint>
#include <string>

#include "simulator/timeline/figure.h"

namespace pw {

/// How a timeline is drawn for the screen.
struct SvgOptions {
  std::string title;    ///< above the drawing; none where empty
  int width = 1200;     ///< of the whole drawing [CSS pixels], 400 to 10,000
  bool inPage = false;  ///< part of a web page or notebook: its styles concern it alone, and its colours follow a dark page
};

/// A drawing of a trace for web pages, in a single self-contained file: a ruler; for each rank a lane with its actions, below them the
/// messages it sends, and how busy it is; and a legend. Text can be selected, and a block has a tooltip. What is narrower than half a pixel
/// is merged: a trace of a million spans makes at most a few megabytes (see `layOut`). Cost: n log n in spans.
[[nodiscard]] std::string toSvg(const Trace& trace, const SvgOptions& options = {});

/// Where a drawing is shown.
enum class SvgUse : std::uint8_t {
  Paper,   ///< its size is in mm
  Screen,  ///< its size is in CSS pixels of 1/96 inch
  Page,    ///< likewise, as part of a web page or notebook
};
/// A figure as SVG 1.1. Text stays text, and hatching is lines, so that every program shows it the same way.
[[nodiscard]] std::string toSvg(const Figure& figure, SvgUse use = SvgUse::Paper);

}  // namespace pw
