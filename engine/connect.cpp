#include "engine/connect.h"

#include <fmt/format.h>

#include "backends/cuda/backend.h"
#include "backends/messages/in_memory_communicator.h"
#include "backends/messages/ucx_communicator.h"
#include "engine/meeting.h"
#include "schedules/error.h"

namespace pw {

std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous, const KeyValueStore& store,
                                           const TorchBackend& torch) {
  if (transport == "ucx") return connectUcx(rendezvous, store);
  if (transport == "gloo") return torch.connectGloo(rendezvous, store);
  throw UsageError(fmt::format("there is no transport '{}'; there are ucx and gloo, and nccl for GPUs", transport));
}

std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous, const TorchBackend& torch) {
  if (transport != "ucx" && transport != "gloo") return connectRanks(transport, rendezvous, {}, torch);
  return connectRanks(transport, rendezvous, openMeeting(rendezvous).dictionary(), torch);
}

GpuRank connectGpus(const RankEnvironment& environment, const Rendezvous& rendezvous, const KeyValueStore& store, bool tf32) {
  if (environment.worldSize == 1)
    return {takeGpu(environment, tf32, nullptr), std::move(inMemoryCommunicators(1, rendezvous.deadline).front())};
  const TakenGpu gpu = takeGpu(environment, tf32, &store);
  auto host = connectUcx(rendezvous, store);
  DeviceLinks links = cudaBackend().ncclLinks(*host, rendezvous.deadline);
  return {gpu, communicatorOver(std::move(host), *gpu.device, std::move(links), rendezvous.deadline)};
}

}  // namespace pw
