#pragma once

#include <string>

#include "simulator/trace/trace.h"

namespace pw {

/// The drawing of `toSvg` for a cell of a notebook or as part of a web page: what it shows of a block stands in a tooltip, its colours
/// follow a dark page, and it scrolls where the page is narrow. `title`: above it; none where empty. Cost: as `toSvg`.
[[nodiscard]] std::string toHtmlPart(const Trace& trace, const std::string& title);

/// The same as a file that any browser opens, without a network.
[[nodiscard]] std::string toHtml(const Trace& trace, const std::string& title);

}  // namespace pw
