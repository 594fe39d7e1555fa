#pragma once

#include <cstddef>

#include "schedules/schedule.h"
#include "simulator/trace/trace.h"

namespace pw {

/// The span that an action has in a trace: for the two ends of a message, the wait for it. Actions that take no time (UNSHARD, RESHARD, an
/// idle cell) have no span; for them this returns ReduceGrad.
[[nodiscard]] SpanKind spanKind(ActionKind kind);

inline constexpr std::size_t kSpanKinds = countOf<SpanKind>();

}  // namespace pw
