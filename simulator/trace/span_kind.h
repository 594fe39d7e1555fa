#pragma once

#include "schedules/schedule.h"
#include "simulator/trace/trace.h"

namespace pw {

/// What a trace shows of an action while it holds its rank: of a message's two ends the wait for it. Actions that take no time of their own
/// (UNSHARD, RESHARD, an idle cell) have no span; they give ReduceGrad.
[[nodiscard]] SpanKind spanKind(ActionKind kind);

}  // namespace pw
