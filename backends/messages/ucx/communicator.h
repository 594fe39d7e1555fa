#pragma once

#include <memory>

#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects all ranks by UCX (tag matching; UCP, openucx.org): shared memory between processes of a host, RDMA or TCP between hosts, as UCX
/// finds and its environment variables (`UCX_TLS`, `UCX_NET_DEVICES`) say. Waits poll for a short while and then sleep (wakeup mode), so
/// that more ranks than cores do not compete for cores. Throws Error naming what failed when the peers do not meet within the
/// deadline.
///
/// Messages progress only while a rank waits or calls `progress`; a large one is fetched by its receiver, and its sender is done when
/// notified. A rank that ends tells its peers; one that is killed cannot: over TCP and RDMA its connections break at once, and for shared
/// memory UCX checks each second whether it is still running (a terminated process counts as running until its parent has reaped it).
[[nodiscard]] std::unique_ptr<Communicator> connectUcx(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
