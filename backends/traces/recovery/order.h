#pragma once

// Internal to the import of traces: which microbatch an action is of, where only the order of a rank's actions says so.

#include <string>
#include <utility>
#include <vector>

#include "backends/traces/events/events.h"
#include "backends/traces/recovery/marks.h"
#include "backends/traces/recovery/places.h"

namespace pw {

/// What `numberByOrder` needs to know beside the spans.
struct OrderFacts {
  int ranks = 0;
  bool chunks = false;                 ///< the schedule gives several stages to a rank
  const RankPlaces* places = nullptr;  ///< of the ranks
  const RankMarks* marks = nullptr;
};

/// Numbers the compute, messages and waits that have no microbatch (−1): the k-th of a kind in a step of its rank is microbatch k, where
/// ranks have one stage; with several, the k-th of the interleaved 1F1B that it is (`interleavingOf`). Steps are those
/// that were marked, or end with the optimizer, or else have as many forwards as the rank that does most of them before its backwards
/// caught up, from the first whole one on; where there are messages only, as many as a rank sends before the gradients caught up. Messages
/// that no neighbour has the other end of, and those that are recorded with their numbers as well, are left out. Spans are sorted. Cost:
/// linear.
void numberByOrder(std::vector<Span>& spans, const OrderFacts& facts, std::vector<std::string>& notes);

}  // namespace pw
