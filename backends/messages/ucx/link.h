#pragma once

#include "backends/messages/channel/link.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects all ranks by UCX's active messages, beside `connectUcx` and with the same ways between processes; the ranks exchange addresses
/// at `store` under `channel/RANK`. Small data is copied, large data is fetched by its receiver from the memory of its sender where the
/// system lets it (CMA, RDMA), and between processes of a host written there (DirectWrites) unless UCX_TLS is set. A process that was
/// killed is noticed as by `connectUcx`, one that was stopped is not.
[[nodiscard]] LinkMaker ucxLink(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
