#pragma once

#include "simulator/step/program.h"

namespace pw {

/// Compiles. A lockstep schedule gets barriers and the exchange after every cycle, whatever `sending` says. All but Overlapped
/// lower a schedule without messages first (`lower`); origins then index `rowsOf`.
/// Throws as `requireFitting`, and Error when it deadlocks (run `check` for the cycle), holds an action twice, or, unless Overlapped,
/// a message of the costs has no SEND or RECV in the rows. Cost: linear in actions plus messages.
[[nodiscard]] Program compile(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

/// The schedule whose rows the origins index: the given one, lowered where `sending` needs it.
[[nodiscard]] Schedule rowsOf(const Schedule& schedule, Sending sending);

}  // namespace pw
