#pragma once

#include "schedules/schedule.h"

namespace pw {

/// Inserts sends and receives into a compute-only schedule: a receive directly before the compute action that needs it
/// (the engine posts it ahead of time, so nothing is lost by that place), a send directly after the one that produces.
/// Stages on one rank hand over without messages. A forward-only schedule gets no backward messages.
/// The first stage receives nothing forward, the last nothing backward. Messages already there are replaced, so
/// lowering twice is lowering once. Cost: linear.
[[nodiscard]] Schedule lower(const Schedule& compute);

/// Removes sends and receives again; `computeOnly(lower(s)) == s` for every s without messages.
[[nodiscard]] Schedule computeOnly(const Schedule& schedule);

}  // namespace pw
