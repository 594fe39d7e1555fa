#pragma once

#include "simulator/step/program.h"

namespace pw {

/// Compiles a schedule and its costs. A lockstep schedule gets barriers and an exchange after every cycle, whatever `sending` is. All ways
/// of sending but Overlapped first lower a schedule without messages (`lower`); origins then index `rowsOf`. Throws as `requireFitting`,
/// and Error when it deadlocks (run `check` for the cycle), holds an action twice, or, unless Overlapped, a message of the costs has no
/// SEND or RECV in the rows. Cost: linear in actions plus messages.
[[nodiscard]] Program compile(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

/// The schedule whose rows the origins index: the given one, lowered where `sending` needs it.
[[nodiscard]] Schedule rowsOf(const Schedule& schedule, Sending sending);

}  // namespace pw
