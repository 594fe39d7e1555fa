#pragma once

#include <memory>
#include <string>

#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"
#include "backends/torch/backend.h"
#include "engine/gpu_share.h"

namespace pw {

/// Connects this rank to its job by the transport of that name: `ucx` (shared memory, RDMA, TCP), or `gloo` (TCP; cannot tell which of
/// several messages arrived first). They exchange their addresses at `store`. Throws UsageError for unknown names, Error naming what failed
/// when the ranks do not meet within the rendezvous' deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous,
                                                         const KeyValueStore& store, const TorchBackend& torch);
/// The same, for ranks that have not met yet.
[[nodiscard]] std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous,
                                                         const TorchBackend& torch);

/// A rank that computes on a GPU.
struct GpuRank {
  TakenGpu gpu;
  std::unique_ptr<Communicator> communicator;  ///< the memory of GPUs by NCCL, all else by ucx
};

/// Takes this rank's GPU and connects the rank to its job, if that has other ranks (otherwise only the deadline of `rendezvous` is used,
/// and `store` is ignored). Throws as `takeGpu` and `connectRanks`.
[[nodiscard]] GpuRank connectGpus(const RankEnvironment& environment, const Rendezvous& rendezvous, const KeyValueStore& store, bool tf32);

}  // namespace pw
