#pragma once

#include <memory>

#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects all ranks by UCX (tag matching; UCP, openucx.org): shared memory between processes of a host, RDMA or TCP between hosts, as UCX
/// finds and its environment variables (`UCX_TLS`, `UCX_NET_DEVICES`) say. Waits poll for a short while and then sleep (wakeup mode), so
/// that ranks that outnumber the cores do not take each other's. Throws Error naming what failed when the peers do not meet within the
/// deadline.
///
/// Messages move only while a rank waits or calls `progress`; a large one is fetched by its receiver, and its sender is done when it heard
/// so. A rank that ends says so to its peers, one that is killed cannot: over TCP and RDMA its connections break at once; through shared
/// memory UCX looks each second whether it still runs (a process that ended counts as running until its parent took its status).
[[nodiscard]] std::unique_ptr<Communicator> connectUcx(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
