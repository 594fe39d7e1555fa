#pragma once

#include <QString>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "app/gui/timeline/drawing/scene.h"

namespace pw::gui {

/// From when to when the gap lasts; equal times: there is none. Spans that the track lacks have no gap either.
[[nodiscard]] std::pair<Ns, Ns> gapOf(const Timeline& timeline, const BubbleRef& bubble);
/// The gap a time lies in.
[[nodiscard]] std::optional<BubbleRef> bubbleUnder(const Timeline& timeline, Source source, Rank rank, Ns time);

/// What to look for; what is not given fits all.
struct FindQuery {
  std::uint32_t kinds = 0;  ///< bits of SpanKind; 0: any
  bool bubbles = false;     ///< gaps rather than spans
  std::optional<Rank> rank;
  std::optional<Stage> stage;
  std::optional<Microbatch> microbatch;
  std::optional<Source> source;
  Ns longerThan = -1;

  bool operator==(const FindQuery&) const = default;
};

/// Reads `F 2.5` (F of stage 2, microbatch 5), torch's `2F5`, `B 3` and `B3` (of microbatch 3, as blocks are labelled), `3B` (of stage 3),
/// `2.5`, `send_f`, `message`, `optimizer`, `rank 3`, `stage 1`, `mb 4`, `bubble`, `> 2ms`, `measured`, and any of these together; upper
/// and lower case are the same.
struct ParsedQuery {
  FindQuery query;
  bool understood = false;
  QString wrong;  ///< the first word that was not; empty: there is none, or all were
};
[[nodiscard]] ParsedQuery parseQuery(const QString& text);

/// A span, or (`bubble`) the gap before the span with this index.
struct Found {
  Ns start = 0;
  SourcedSpan at;
  bool bubble = false;
};

/// Everything that fits, by start, then source and place. Linear, and sorting what is found. Timelines may be null.
[[nodiscard]] std::vector<Found> findAll(const FindQuery& query, const Timeline* predicted, const Timeline* measured);

}  // namespace pw::gui
