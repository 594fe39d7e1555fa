#pragma once

#include "simulator/step/program.h"

namespace pw {

/// Compiles a schedule and its costs. A lockstep schedule gets barriers and an exchange after every cycle, whatever `sending` is. Unless
/// `sending` is Overlapped, a schedule without messages is first lowered (`lower`); origins then index `rowsOf`. Throws as
/// `requireFitting`, and Error when the schedule deadlocks (run `check` for the cycle), contains an action twice, or, unless Overlapped,
/// lacks the SEND or RECV of a message of the costs. Cost: linear in actions plus messages.
[[nodiscard]] Program compile(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped);

/// The schedule whose rows the origins index: the given one, lowered where `sending` needs it.
[[nodiscard]] Schedule rowsOf(const Schedule& schedule, Sending sending);

}  // namespace pw
