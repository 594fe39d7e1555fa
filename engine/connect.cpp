#include "engine/connect.h"

#include <fmt/format.h>

#include "backends/cuda_backend.h"
#include "backends/ucx_communicator.h"
#include "schedules/error.h"

namespace pw {

std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous, const TorchBackend& torch) {
  if (transport == "ucx") return connectUcx(rendezvous, torch.connectStore(rendezvous));
  if (transport == "gloo") return torch.connectGloo(rendezvous);
  if (transport == "nccl") {
    const CudaBackend& cuda = cudaBackend();
    auto host = connectUcx(rendezvous, torch.connectStore(rendezvous));
    DeviceLinks links = cuda.ncclLinks(*host, rendezvous.deadline);
    return communicatorOver(std::move(host), cuda.device(), std::move(links), rendezvous.deadline);
  }
  throw UsageError(fmt::format("there is no transport '{}'; there are ucx, gloo and nccl", transport));
}

}  // namespace pw
