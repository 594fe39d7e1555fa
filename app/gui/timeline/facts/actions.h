#pragma once

#include <optional>

#include "schedules/schedule.h"
#include "simulator/timeline/timeline.h"

namespace pw::gui {

/// The compute action of a schedule that a block is; nothing: it is another kind of block, or not there.
[[nodiscard]] std::optional<Action> actionOf(const Timeline& timeline, const SpanRef& span);
/// The block of a compute action, on the rank that the placement says; nothing where there is none. Cost: as `findAction`.
[[nodiscard]] std::optional<SpanRef> blockOf(const Timeline& timeline, const Placement& placement, const Action& action);

}  // namespace pw::gui
