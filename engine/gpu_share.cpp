#include "engine/gpu_share.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "schedules/error.h"

namespace pw {
namespace {

/// 0: unknown.
int ranksOfHost(const RankEnvironment& environment) {
  return environment.localSize > 0 ? environment.localSize : environment.oneHost ? environment.worldSize : 0;
}

}  // namespace

GpuShare gpuShareOf(const RankEnvironment& environment, int gpus) {
  if (gpus < 1) throw UsageError("There is no GPU on this machine for --backend nccl; see pipewright devices, and use --backend ucx.");
  const int ranks = ranksOfHost(environment);
  if (ranks == 0) {
    throw UsageError("LOCAL_WORLD_SIZE is not set, so it is unknown how many ranks share this host's GPUs; set it, and LOCAL_RANK, as torchrun does.");
  }
  const int device = environment.localRank % gpus, behind = std::max(0, ranks - 1 - device);  // of these every `gpus`-th computes on it, too
  return {device, {environment.localRank / gpus, 1 + behind / gpus}};
}

std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share) {
  // A receive begins when its message is announced and then waits on the GPU: it shall not hold many multiprocessors.
  std::vector<std::pair<std::string, std::string>> variables{{"NCCL_MAX_P2P_NCHANNELS", "4"}};
  if (share.part.of < 2) return variables;
  variables.insert(variables.end(), {{"NCCL_HOSTID", fmt::format("pipewright-rank-{}", environment.rank.value)},
                                     {"NCCL_MULTI_RANK_GPU_ENABLE", "1"}});
  if (environment.oneHost) variables.emplace_back("NCCL_SOCKET_IFNAME", "lo");
  return variables;
}

bool mpsServes(const std::string& folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string path = folder + "/control";
  if (path.size() >= sizeof address.sun_path) return false;
  path.copy(address.sun_path, path.size());
  const int probe = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);  // of the kind that the daemon listens with
  if (probe < 0) return false;
  // One that has no room at the moment, or takes another kind, listens, too; a file that a daemon of old left behind refuses.
  const bool listens = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN || errno == EPROTOTYPE;
  ::close(probe);
  return listens;
}

std::string mpsFolder() {
  const char* const set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return set != nullptr && *set != '\0' ? set : "/tmp/nvidia-mps";
}

std::string rehearsalNote(const RankEnvironment& environment, int gpus, const GpuSharing& sharing) {
  const int ranks = ranksOfHost(environment);
  if (gpus < 1 || ranks <= gpus) return {};
  const std::string_view them = gpus == 1 ? "it" : "them";
  const std::string share = fmt::format("{} ranks share {} GPU{}", ranks, gpus, gpus == 1 ? "" : "s");
  const std::string judged = fmt::format("results are right, times are not those of {} GPUs", ranks);
  if (!sharing.atOnce) return fmt::format("{} and take turns on {}: {}; nvidia-cuda-mps-control -d lets them run at the same time", share, them, judged);
  if (!sharing.whyWhole.empty()) return fmt::format("{} at the same time, each on all of {}: {}. No parts: {}", share, them, judged, sharing.whyWhole);
  return fmt::format("{} at the same time, each on {} multiprocessors of its own: {}", share, sharing.multiprocessors, judged);
}

}  // namespace pw
