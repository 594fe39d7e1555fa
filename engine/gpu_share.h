#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/backend.h"
#include "backends/messages/rendezvous.h"
#include "engine/rank_environment.h"

namespace pw {

/// CUDA's number of the GPU that a rank computes on: the ranks of a host take the GPUs that they see in turn. Throws UsageError where there
/// is none, and where there are several and a launcher does not say how many ranks a host has.
[[nodiscard]] int gpuOf(const RankEnvironment& environment, int gpus);

/// Who computes where.
struct GpuShare {
  GpuPart part;             ///< which of the ranks on its GPU a rank is: more than one rehearse a plan
  int ranks = 1, gpus = 1;  ///< of the job
};

/// `identities`: of each rank's GPU, by rank.
[[nodiscard]] GpuShare gpuShareOf(const std::vector<std::string>& identities, Rank rank);

/// What NCCL is told, where the user does not: to move a message by at most 4 channels, as each may hold a multiprocessor while a receive
/// waits. A rank that shares its GPU, which NCCL refuses else: before 2.30 that it is on a host of its own, to be reached by sockets, which
/// a machine without network adapters has, too (over the loopback device where all ranks are on this host); later versions that several
/// ranks a GPU are meant.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share);

/// Whether processes that share a GPU run on it at the same time, by NVIDIA's Multi-Process Service, in place of taking turns: its daemon
/// listens on the socket `control` in that folder, where CUDA looks for it.
[[nodiscard]] bool mpsServes(const std::string& folder);
/// CUDA_MPS_PIPE_DIRECTORY, else CUDA's own choice.
[[nodiscard]] std::string mpsFolder();

/// How ranks compute that share a GPU.
struct GpuSharing {
  bool atOnce = false;      ///< see mpsServes
  int multiprocessors = 0;  ///< that this rank computes on
  std::string whyWhole;     ///< why that is all of them, where parts were wanted; a sentence
};

/// What one should know of times where ranks share GPUs: `4 ranks share 1 GPU and take turns on it: …`; empty where each has its own.
[[nodiscard]] std::string rehearsalNote(const GpuShare& share, const GpuSharing& sharing);

/// The GPU that this process computes on.
struct TakenGpu {
  const Device* device = nullptr;
  std::string note;  ///< see rehearsalNote
};

/// Makes this process compute on its rank's GPU, on a part of it where ranks share it at once, and tells NCCL what it needs. Once a
/// process, before anything else of CUDA. All ranks of the job call it and learn of each other's GPUs by `store` (null where there is one
/// rank). Throws as `gpuOf`, `cudaBackend` and the store.
[[nodiscard]] TakenGpu takeGpu(const RankEnvironment& environment, bool tf32, const KeyValueStore* store);

}  // namespace pw
