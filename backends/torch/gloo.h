#pragma once

#include <memory>

#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects to the store that torchrun's agent serves (c10d's TCPStore), to a part of it that the ranks' n-th calls in this attempt share.
/// Throws Error naming address and port; does not return if the agent hangs.
[[nodiscard]] KeyValueStore connectStore(const Rendezvous& rendezvous);

/// Connects all ranks by Gloo (full mesh), whose addresses they exchange at `store`. Throws Error naming a rank, or address and port, when
/// the peers do not meet within the deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
