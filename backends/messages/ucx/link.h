#pragma once

#include "backends/messages/channel/link.h"
#include "backends/messages/rendezvous.h"

namespace pw {

/// Connects all ranks by UCX's active messages, independently of `connectUcx` but over the same transports; the ranks exchange addresses
/// at `store` under `channel/RANK`. Small data is copied. Large data is fetched by its receiver from the memory of its sender where the
/// system allows that (CMA, RDMA), and between processes of one host written into the receiver's memory (DirectWrites) unless UCX_TLS is
/// set. A killed process is noticed as by `connectUcx`, a stopped one is not.
[[nodiscard]] LinkMaker ucxLink(const Rendezvous& rendezvous, const KeyValueStore& store);

}  // namespace pw
