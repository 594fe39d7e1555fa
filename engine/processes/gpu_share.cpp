#include "engine/processes/gpu_share.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <set>

#include "backends/host/environment.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// Of each rank's GPU, by rank; this one's is `own`.
std::vector<std::string> gpusOfAll(const RankEnvironment& environment, const KeyValueStore* store, const std::string& own) {
  if (store == nullptr) return {own};
  const auto key = [](int rank) { return fmt::format("gpu/{}", rank); };
  store->set(key(environment.rank.value), own);
  std::vector<std::string> all;
  for (int rank = 0; rank < environment.worldSize; ++rank) all.push_back(store->get(key(rank)));
  return all;
}

}  // namespace

int gpuOf(const RankEnvironment& environment, int gpus) {
  if (gpus < 1) throw UsageError("There is no GPU on this machine for --backend nccl; see pipewright devices, and use --backend ucx.");
  if (gpus > 1 && environment.localSize == 0 && !environment.oneHost) {
    throw UsageError(
        "LOCAL_WORLD_SIZE is not set, so it is unknown which ranks take this host's GPUs; set it, and LOCAL_RANK, as torchrun does.");
  }
  return environment.localRank % gpus;
}

GpuShare gpuShareOf(const std::vector<std::string>& identities, JobRank rank) {
  GpuShare share{.part = {0, 0},
                 .ranks = static_cast<int>(identities.size()),
                 .gpus = static_cast<int>(std::set(identities.begin(), identities.end()).size())};
  for (std::size_t r = 0; r < identities.size(); ++r) {
    if (identities[r] != identities.at(rank.index())) continue;
    if (r < rank.index()) ++share.part.index;
    ++share.part.of;
  }
  return share;
}

std::vector<std::pair<std::string, std::string>> ncclVariables(const RankEnvironment& environment, const GpuShare& share) {
  // A receive starts when its message is announced and then waits on the GPU, so it must not occupy many multiprocessors.
  std::vector<std::pair<std::string, std::string>> variables{{"NCCL_MAX_P2P_NCHANNELS", "4"}};
  if (share.part.of < 2) return variables;
  variables.insert(variables.end(), {{"NCCL_HOSTID", fmt::format("pipewright-rank-{}", environment.rank.value)},
                                     {"NCCL_MULTI_RANK_GPU_ENABLE", "1"},
                                     {"NCCL_NET", "Socket"}});
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
  const bool listens =
      ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno == EAGAIN || errno == EPROTOTYPE;
  ::close(probe);
  return listens;
}

std::string mpsFolder() {
  const char* const set = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  return set != nullptr && *set != '\0' ? set : "/tmp/nvidia-mps";
}

std::string rehearsalNote(const GpuShare& all, const GpuSharing& sharing) {
  const auto& [part, ranks, gpus] = all;
  if (ranks <= gpus) return {};
  const std::string_view them = gpus == 1 ? "it" : "them";
  const std::string share = fmt::format("{} ranks share {} GPU{}", ranks, gpus, gpus == 1 ? "" : "s");
  const std::string judged = fmt::format("results are right, times are not those of {} GPUs", ranks);
  if (!sharing.atOnce)
    return fmt::format("{} and take turns on {}: {}; nvidia-cuda-mps-control -d lets them run at the same time", share, them, judged);
  if (!sharing.whyWhole.empty())
    return fmt::format("{} at the same time, each on all of {}: {}. No parts: {}", share, them, judged, sharing.whyWhole);
  return fmt::format("{} at the same time, each on {} multiprocessors of its own: {}", share, sharing.multiprocessors, judged);
}

TakenGpu takeGpu(const RankEnvironment& environment, bool tf32, const KeyValueStore* store) {
  const bool underMps = mpsServes(mpsFolder());
  // Before CUDA begins. Streams beyond the connections to the device wait for each other, and there are two for each peer; MPS has 120 for
  // all its clients.
  if (!underMps) setDefaultVariables(std::array<EnvironmentVariable, 1>{{{"CUDA_DEVICE_MAX_CONNECTIONS", "32"}}});
  const CudaBackend& cuda = cudaBackend();
  const int device = gpuOf(environment, cuda.deviceCount());
  const GpuShare share = gpuShareOf(gpusOfAll(environment, store, cuda.identity(device)), store == nullptr ? JobRank(0) : environment.rank);
  setDefaultVariables(ncclVariables(environment, share));
  GpuSharing sharing;
  sharing.atOnce = share.part.of > 1 && underMps;
  sharing.whyWhole = cuda.prepareProcess(device, tf32, sharing.atOnce ? share.part : GpuPart{});  // a part would make a turn longer
  sharing.multiprocessors = cuda.multiprocessors();
  return {&cuda.device(), rehearsalNote(share, sharing)};
}

}  // namespace pw
