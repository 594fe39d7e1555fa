#pragma once

#include <string>
#include <utility>
#include <vector>

#include "backends/cuda_backend.h"
#include "engine/rank_environment.h"

namespace pw {

/// The GPU that a rank computes on.
struct GpuShare {
  int device = 0;  ///< CUDA's number
  GpuPart part;    ///< which of the ranks of this host that compute on it this is: more than one rehearse a plan
};

/// Ranks of a host take its GPUs in turn. Throws UsageError where there is none, and where a launcher does not say how many ranks a host has.
[[nodiscard]] GpuShare gpuShareOf(const RankEnvironment& environment, int gpus);

/// What NCCL is told, where the user does not: to move a message by at most 4 channels, as each may hold a multiprocessor while a receive waits. Where ranks
/// share a GPU, which it refuses else: NCCL before 2.30 that they are on different hosts (it then uses sockets, over the loopback device where all ranks
/// are on this host), later ones that several ranks a GPU are meant.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share);

/// Whether processes that share a GPU run on it at the same time, by NVIDIA's Multi-Process Service, in place of taking turns: its daemon listens on
/// the socket `control` in that folder, where CUDA looks for it.
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
[[nodiscard]] std::string rehearsalNote(const RankEnvironment& environment, int gpus, const GpuSharing& sharing);

}  // namespace pw
