#pragma once

#include <string>
#include <utility>
#include <vector>

#include "simulator/report/explain.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Rows of text below a heading; the first cell of each row is a name, the others are numbers.
struct PageTable {
  std::string title;
  std::vector<std::string> head;
  std::vector<std::vector<std::string>> rows;
};

/// A step on the page.
struct PageLane {
  std::string name;  ///< `predicted`, `measured step 3`
  const Trace* trace = nullptr;
  const Explanation* explanation = nullptr;  ///< why its ranks wait; null: only what the trace itself says
};

/// What a page shows.
struct Page {
  std::string title;
  std::string sentence;                                    ///< below the title: the verdict of a comparison; none where empty
  std::vector<std::pair<std::string, std::string>> facts;  ///< the plan, in pairs of name and value
  std::vector<PageLane> lanes;                             ///< one or two, which share a time axis; actions of the second are compared
  std::vector<PageTable> tables;
};

inline constexpr std::size_t kMostPageSpans = 1'000'000;

/// A web page in one file, which needs no network: the timelines with pan and zoom, why ranks wait at the pointer, and the tables. Its
/// program is resources/page/page.js, its looks page.css beside it. Times are exact. A span takes 6 to 15 bytes: 10,000 actions with their
/// messages, predicted and measured, about 0.5 MB. Bubbles have their reason in full as long as they are among the largest that take
/// 200 KiB together, others in short. Throws UsageError above kMostPageSpans. Cost: n log n.
[[nodiscard]] std::string toHtml(const Page& page);

}  // namespace pw
