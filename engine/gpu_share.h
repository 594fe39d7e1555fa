#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/rank_environment.h"

namespace pw {

/// The GPU that a rank computes on.
struct GpuShare {
  int device = 0;     ///< CUDA's number
  int ranks = 1;      ///< of this host that compute on it: more than one rehearses a plan, as they take turns
};

/// Ranks of a host take its GPUs in turn. Throws UsageError where there is none, and where a launcher does not say how many ranks a host has.
[[nodiscard]] GpuShare gpuShareOf(const RankEnvironment& environment, int gpus);

/// What NCCL must be told where ranks share a GPU, which it refuses else: NCCL before 2.30 that they are on different hosts (it then uses
/// sockets, over the loopback device where all ranks are on this host), later ones that several ranks a GPU are meant. Nothing where they do not.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share);

/// `4 ranks share 1 GPU and take turns on it: results are right, times are not those of 4 GPUs`; empty where each has its own.
[[nodiscard]] std::string rehearsalNote(int ranks, int gpus);

}  // namespace pw
