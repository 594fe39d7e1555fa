#pragma once

// Internal to the import of traces: waits and sends within actions.

#include "backends/traces/events/events.h"

namespace pw {

/// Cuts what is no computation off actions: torch's runtime waits for a receive within the action that needs it, and its GPipe sends within
/// the action too, so on a CPU an action's span begins with the wait and ends after the send. Both become spans of their own; waits that
/// only posted a receive are dropped. Slots stay: whose the wait is cannot be seen. Does nothing where the file says nothing about
/// transfers. Cost: a sort of the transfers.
void cutTransfers(FileEvents& file);

}  // namespace pw
