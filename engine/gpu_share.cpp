#include "engine/gpu_share.h"

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {

GpuShare gpuShareOf(const RankEnvironment& environment, int gpus) {
  if (gpus < 1) throw UsageError("There is no GPU on this machine for --backend nccl; see pipewright devices, and use --backend ucx.");
  const int ranks = environment.localSize > 0 ? environment.localSize : environment.oneHost ? environment.worldSize : 0;
  if (ranks == 0) throw UsageError("LOCAL_WORLD_SIZE is not set, so it is unknown how many ranks share this host's GPUs; set it, and LOCAL_RANK, as torchrun does.");
  GpuShare share{environment.localRank % gpus, 0};
  for (int rank = share.device; rank < ranks; rank += gpus) ++share.ranks;
  return share;
}

std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share) {
  if (share.ranks < 2) return {};
  std::vector<std::pair<std::string, std::string>> variables{{"NCCL_HOSTID", fmt::format("pipewright-rank-{}", environment.rank.value)},
                                                             {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}};
  if (environment.oneHost) variables.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  return variables;
}

std::string rehearsalNote(int ranks, int gpus) {
  if (gpus < 1 || ranks <= gpus) return {};
  return fmt::format("{} ranks share {} GPU{} and take turns on {}: results are right, times are not those of {} GPUs", ranks, gpus, gpus == 1 ? "" : "s",
                     gpus == 1 ? "it" : "them", ranks);
}

}  // namespace pw
