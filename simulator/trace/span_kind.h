#pragma once

#include <cstddef>
#include <optional>

#include "schedules/schedule.h"
#include "simulator/trace/trace.h"

namespace pw {

/// The span that an action has in a trace: for the two ends of a message, the wait for it. Nothing for actions that take no time (UNSHARD,
/// RESHARD, an idle cell).
[[nodiscard]] std::optional<SpanKind> spanKind(ActionKind kind);

inline constexpr std::size_t kSpanKinds = countOf<SpanKind>();

}  // namespace pw
