#pragma once

#include <string>

#include "simulator/trace/trace.h"

namespace pw {

/// How a timeline is drawn.
struct SvgOptions {
  std::string title;    ///< above the drawing; none where empty
  int width = 1200;     ///< of the whole drawing [CSS pixels], 400 to 10,000
  bool inPage = false;  ///< part of a web page or notebook: its styles concern it alone, and its colours follow a dark page
};

/// A drawing of a trace for papers and web pages, in a single self-contained file: a ruler; for each rank a lane with its actions, below
/// them the messages it sends, and how busy it is; and a legend. Colours are those of Okabe and Ito (2008), which are distinguishable with
/// any colour vision; text can be selected, and a block has a tooltip. The widest blocks, at most 12,000, are drawn one by one; what is
/// narrower than half a pixel, or beyond that number, is merged by columns, filled by each kind's share of their time: a trace of a million
/// spans makes at most a few megabytes. Waits are bubble, drawn as the lane's background. Cost: n log n in spans.
[[nodiscard]] std::string toSvg(const Trace& trace, const SvgOptions& options = {});

}  // namespace pw
