#pragma once

#include "simulator/timeline/timeline.h"

namespace pw {

/// The same timeline as `timelineOf(traceOf(rows, costs, program, times))`, without building the trace. The arrays of `timeline` are
/// reused: if it was filled from a program of the same rows before, only a few words per channel are allocated. Linear.
void fillTimeline(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, Timeline& timeline);

}  // namespace pw
