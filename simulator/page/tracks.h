#pragma once

// The tracks of a step as text for the page. For use in this folder only.

#include <map>
#include <string>
#include <tuple>

#include "simulator/page/page.h"
#include "simulator/timeline/timeline.h"

namespace pw::page {

/// What spans are, numbered in the order of their first use: kind, stage, and of messages the receiver.
class Tags {
 public:
  [[nodiscard]] std::size_t numberOf(const SpanTag& tag, Rank rank);
  /// As a JSON list of [kind, stage, peer].
  [[nodiscard]] std::string json() const;

 private:
  std::map<std::tuple<int, int, int>, std::size_t> numbers_{};
};

/// Spans, separated by `;`, of four numbers in base 36, separated by `,`: start since the end (of messages the start) of the span before,
/// duration (empty: as that of the last span with this tag), tag, microbatch. Empty at the end are left out, and so is a 0.
[[nodiscard]] std::string tracksText(const SpanTrack& track, Rank rank, bool fromEnd, Tags& tags);

/// Reasons of a rank's bubbles, separated by `;`: start since that of the bubble before, and who is awaited: rank and action (`2,3B0`), or
/// of measured steps what a wait in the trace is for (`F3` and the stage: `F,3,0`).
[[nodiscard]] std::string shortReasons(const PageLane& lane, Rank rank, const SpanTrack& compute);

/// Of the bubbles with the longest waits, as many as fit: their start and the reason in full.
[[nodiscard]] std::map<std::pair<int, Ns>, std::string> longReasons(const Explanation& explanation, std::size_t bytes);

/// A number in base 36.
[[nodiscard]] std::string base36(std::int64_t value);

}  // namespace pw::page
