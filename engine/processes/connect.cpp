#include "engine/processes/connect.h"

#include <utility>

#include <fmt/format.h>

#include "backends/cuda/backend.h"
#include "backends/messages/in_memory_communicator.h"
#include "backends/messages/ucx/communicator.h"
#include "backends/messages/ucx/link.h"
#include "engine/processes/meeting.h"
#include "schedules/error.h"

namespace pw {

std::unique_ptr<Communicator> connectRanks(Transport transport, const Rendezvous& rendezvous, const KeyValueStore& store,
                                           const TorchBackend& torch) {
  switch (transport) {
    case Transport::Ucx: return connectUcx(rendezvous, store);
    case Transport::Gloo: return torch.connectGloo(rendezvous, store);
    case Transport::Nccl: break;  // needs the rank's GPU
  }
  throw UsageError(fmt::format("the transport {} is for GPUs; use {}", nameOf(transport), hostTransports(" or ")));
}

std::unique_ptr<Communicator> connectRanks(Transport transport, const Rendezvous& rendezvous, const TorchBackend& torch) {
  return connectRanks(transport, rendezvous, openMeeting(rendezvous).dictionary(), torch);
}

LinkMaker linkRanks(Transport transport, const Rendezvous& rendezvous, const KeyValueStore& store, const TorchBackend& torch) {
  switch (transport) {
    case Transport::Ucx:
    case Transport::Nccl: return ucxLink(rendezvous, store);
    case Transport::Gloo: break;
  }
  return {.rank = rendezvous.rank, .size = rendezvous.size, .token = rendezvous.token, .connect = [=, &torch](LinkEvents events) {
            return torch.connectGlooLink(rendezvous, store, std::move(events));
          }};
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
