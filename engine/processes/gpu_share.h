#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/cuda/backend.h"
#include "backends/messages/rendezvous.h"
#include "engine/processes/rank_environment.h"

namespace pw {

/// CUDA's number of the GPU that a rank computes on: the ranks of a host are assigned the GPUs visible to them in turn. Throws UsageError
/// where there is none, and if there are several and the launcher does not say how many ranks the host has.
[[nodiscard]] int gpuOf(const RankEnvironment& environment, int gpus);

/// Which rank computes on which GPU.
struct GpuShare {
  GpuPart part;             ///< this rank's index among the ranks on its GPU: with more than one, the run is a rehearsal of the plan
  int ranks = 1, gpus = 1;  ///< of the job
};

/// `identities`: of each rank's GPU, by rank.
[[nodiscard]] GpuShare gpuShareOf(const std::vector<std::string>& identities, JobRank rank);

/// NCCL settings, unless the user has set them: at most 4 channels per message, because each may occupy a multiprocessor while a receive
/// waits. For ranks that share a GPU, which NCCL otherwise refuses: before 2.30, that the rank is on a separate host reached by sockets,
/// which also works without network adapters (over the loopback device if all ranks are on this host); in later versions, that several
/// ranks per GPU are intended.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share);

/// Whether processes that share a GPU run on it at the same time, by NVIDIA's Multi-Process Service, instead of taking turns: its daemon
/// listens on the socket `control` in that folder, where CUDA looks for it.
[[nodiscard]] bool mpsServes(const std::string& folder);
/// CUDA_MPS_PIPE_DIRECTORY, else CUDA's own choice.
[[nodiscard]] std::string mpsFolder();

/// How ranks compute that share a GPU.
struct GpuSharing {
  bool atOnce = false;      ///< see mpsServes
  int multiprocessors = 0;  ///< that this rank computes on
  std::string whyWhole;     ///< why it is all of them although parts were requested; a sentence
};

/// A note on measured times when ranks share GPUs: `4 ranks share 1 GPU and take turns on it: …`; empty where each has its own.
[[nodiscard]] std::string rehearsalNote(const GpuShare& share, const GpuSharing& sharing);

/// The GPU that this process computes on.
struct TakenGpu {
  const Device* device = nullptr;
  std::string note;  ///< see rehearsalNote
};

/// Makes this process compute on its rank's GPU, on a part of it if ranks share it at the same time, and sets NCCL's variables. Call once
/// per process, before any other use of CUDA. All ranks of the job call it and exchange their GPUs through `store` (null with one rank).
/// Throws as `gpuOf`, `cudaBackend` and the store.
[[nodiscard]] TakenGpu takeGpu(const RankEnvironment& environment, bool tf32, const KeyValueStore* store);

}  // namespace pw
