#pragma once

#include <optional>
#include <string_view>

#include "schedules/schedule.h"
#include "simulator/trace/trace.h"

namespace pw {

/// The compute-only schedule that a trace shows: each rank's F, B, I and W in the order of their starts, on the ranks that did them; slots
/// overlap. Where a stage's microbatches are on two ranks, the second replicas have those from some number on. Its name is that of
/// `familyOf`, or empty. Nothing where stages, microbatches or actions are missing, or where a rank has both replicas' microbatches mixed:
/// then the trace is of a part of a step, or of several pipelines. Cost: linear in spans, and the generation of each family.
[[nodiscard]] std::optional<Schedule> executedSchedule(const Trace& trace);

/// The first generator, in their order, that makes these rows; pauses, messages and what overlaps do not count. Empty: none.
[[nodiscard]] std::string_view familyOf(const Schedule& schedule);

}  // namespace pw
