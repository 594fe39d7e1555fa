#pragma once

#include <string>

#include "schedules/schedule.h"
#include "simulator/plan/plan.h"
#include "simulator/trace/trace.h"

namespace pw::python {

/// The HTML that a notebook shows for these: the timeline with tooltips.
[[nodiscard]] std::string pictureOf(const Trace& trace, const Schedule& schedule, const std::string& costs);
/// With a forward of 1 ms and a backward of twice that; of a schedule that cannot run, its problems.
[[nodiscard]] std::string pictureOf(const Schedule& schedule);
[[nodiscard]] std::string pictureOf(const Plan& plan);

}  // namespace pw::python
