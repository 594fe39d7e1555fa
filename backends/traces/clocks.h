#pragma once

// Internal to the import of traces: several files on one clock.

#include <string>
#include <vector>

#include "backends/traces/events.h"
#include "backends/traces/places.h"
#include "backends/traces/ranks.h"

namespace pw {

/// Shifts the spans of whole files in time so that no action starts before its input exists. What one file sends to another bounds the
/// difference of their clocks from one side, what comes back from the other side; where the bounds exclude that the clocks agree, it is the
/// middle of them, or where they do so by less than they are wide, the nearer bound. Files are joined to that of the lowest rank over the
/// pairs whose bounds are closest. No shift where clocks agree. Cost: linear, times a logarithm.
void alignFiles(std::vector<FileEvents>& files, const RankMap& map, const RankPlaces& places, std::vector<std::string>& notes);

}  // namespace pw
