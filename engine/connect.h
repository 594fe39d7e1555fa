#pragma once

#include <memory>
#include <string>

#include "backends/communicator.h"
#include "backends/rendezvous.h"
#include "backends/torch_backend.h"

namespace pw {

/// Connects this rank to its job by the transport of that name: `ucx` (shared memory, RDMA, TCP), `gloo` (TCP; cannot tell which of several
/// messages came first), `nccl` (the memory of GPUs by NCCL, all else by ucx; the rank's GPU must be prepared). All meet at c10d's store. Throws
/// UsageError for unknown names, Error naming what failed when the ranks do not meet within the rendezvous' deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous,
                                                         const TorchBackend& torch);

}  // namespace pw
