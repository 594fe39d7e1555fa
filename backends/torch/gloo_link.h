#pragma once

#include "backends/messages/channel/link.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects all ranks by Gloo (full mesh) for a message channel, beside `connectGloo`; the ranks exchange addresses at `store` under
/// `channel/…/RANK`. Gloo's operations cannot be polled: two threads for each other rank wait for them. Throws Error as connectGloo. A
/// process that ended is noticed when its connection breaks.
[[nodiscard]] MessageLink connectGlooLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events);

}  // namespace pw
