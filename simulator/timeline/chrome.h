#pragma once

#include <string>
#include <vector>

#include "simulator/trace/trace.h"

namespace pw {

/// Chrome / Perfetto JSON of one or several traces: each a process named `names[i]` with a thread for every rank's compute lane and for
/// every message lane (overlapping messages get separate lanes), a counter for each rank's memory, and for every message a flow arrow from
/// the action that produced it over the message to the action that uses it. Cost: n log n in spans.
[[nodiscard]] std::string toChromeJson(const std::vector<const Trace*>& traces, const std::vector<std::string>& names);

}  // namespace pw
