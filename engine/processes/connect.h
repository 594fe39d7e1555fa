#pragma once

#include <memory>

#include "backends/messages/channel/link.h"
#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"
#include "backends/messages/transport.h"
#include "backends/torch/backend.h"
#include "engine/processes/gpu_share.h"

namespace pw {

/// Connects this rank to its job by a transport of hosts (those of GPUs: `connectGpus`). The ranks exchange their addresses at `store`.
/// Throws Error naming what failed when they do not meet within the rendezvous' deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectRanks(Transport transport, const Rendezvous& rendezvous, const KeyValueStore& store,
                                                         const TorchBackend& torch);
/// The same, for ranks that have not met yet.
[[nodiscard]] std::unique_ptr<Communicator> connectRanks(Transport transport, const Rendezvous& rendezvous, const TorchBackend& torch);

/// The links of a MessageChannel between the ranks of a job, beside `connectRanks` and by the same transport; they connect when the channel
/// is made, and throw then as `connectRanks`. Their messages are in the memory of hosts: ranks with GPUs use UCX.
[[nodiscard]] LinkMaker linkRanks(Transport transport, const Rendezvous& rendezvous, const KeyValueStore& store, const TorchBackend& torch);

/// A rank that computes on a GPU.
struct GpuRank {
  TakenGpu gpu;
  std::unique_ptr<Communicator> communicator;  ///< the memory of GPUs by NCCL, all else by ucx
};

/// Takes this rank's GPU and connects the rank to its job, if that has other ranks (otherwise only the deadline of `rendezvous` is used,
/// and `store` is ignored). Throws as `takeGpu` and `connectRanks`.
[[nodiscard]] GpuRank connectGpus(const RankEnvironment& environment, const Rendezvous& rendezvous, const KeyValueStore& store, bool tf32);

}  // namespace pw
