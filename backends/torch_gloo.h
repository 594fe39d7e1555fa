#pragma once

#include <memory>

#include "backends/communicator.h"
#include "backends/rendezvous.h"

namespace pw {

/// Connects to the job's store (c10d's TCPStore, which torchrun's agents serve too). Throws Error naming address and port.
[[nodiscard]] KeyValueStore connectStore(const Rendezvous& rendezvous);

/// Connects all ranks by Gloo through c10d (TCPStore, full mesh). Throws Error naming address and port when the peers do not
/// meet within the deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous);

}  // namespace pw
