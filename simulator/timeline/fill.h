#pragma once

#include "simulator/timeline/timeline.h"

namespace pw {

/// The timeline of a trace, which must be in order (`normalize`). Linear.
[[nodiscard]] Timeline timelineOf(const Trace& trace);

/// The same timeline as of `traceOf(rows, costs, program, times)`, without building the trace. The arrays of `timeline` are reused: if it
/// was filled from a program of the same rows before, only a few words per channel are allocated. Linear.
void fillTimeline(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, Timeline& timeline);

}  // namespace pw
