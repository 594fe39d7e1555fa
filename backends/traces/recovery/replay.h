#pragma once

// Internal to the import of traces: starts of actions where a file holds only their durations and order.

#include <vector>

#include "backends/traces/recovery/places.h"
#include "simulator/trace/trace.h"

namespace pw {

/// Moves each rank's actions, in their order, to when the rank and their input are ready; messages take no time and are not moved before
/// their action. Where the ranks wait for each other in a circle, the first that is left does not wait. Spans are sorted again. Cost:
/// linear, times a logarithm.
void replayOrder(std::vector<Span>& spans, int ranks, const RankPlaces& places);

}  // namespace pw
