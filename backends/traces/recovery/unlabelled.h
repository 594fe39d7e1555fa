#pragma once

// Internal to the import of traces: actions that have no label, between messages that have one.

#include <string>
#include <vector>

#include "backends/traces/recovery/steps.h"

namespace pw {

/// Adds forwards and backwards to a material that has messages only, as newer versions of torch label those of Schedule1F1B: a forward
/// follows the wait for its input, on the first stage it ends where it is sent; a backward follows the wait for its gradient, on the last
/// stage it ends where it is sent. Alone between two messages an action takes all the time between them. Several share it in the
/// proportion of what such actions take alone, at first on their stage, else on any; else a backward takes twice a forward. What is open
/// at an end of a step takes what is usual on its stage, but nothing reaches over a mark of the profiler, where a step begins. Messages are
/// numbered, spans sorted. Does nothing where there is an action, or no message. Cost: n log n.
void addUnlabelled(Material& material, std::vector<std::string>& notes);

}  // namespace pw
