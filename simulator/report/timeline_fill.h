#pragma once

#include "simulator/report/timeline.h"

namespace pw {

/// Linear. The trace is in order (`normalize`).
[[nodiscard]] Timeline timelineOf(const Trace& trace);

/// The same timeline as of `traceOf(rows, costs, program, times)`, without making the trace: the arrays of `timeline` are used again, so
/// that where it was filled from a program of the same rows before only a few words for each channel are allocated. Linear.
void fillTimeline(const Schedule& rows, const CostTable& costs, const Program& program, const Times& times, Timeline& timeline);

}  // namespace pw
