#include "engine/connect.h"

#include <fmt/format.h>

#include "backends/ucx_communicator.h"
#include "schedules/error.h"

namespace pw {

std::unique_ptr<Communicator> connectRanks(const std::string& transport, const Rendezvous& rendezvous, const TorchBackend& torch) {
  if (transport == "ucx") return connectUcx(rendezvous, torch.connectStore(rendezvous));
  if (transport == "gloo") return torch.connectGloo(rendezvous);
  if (transport == "nccl") throw UsageError("the transport nccl is for GPUs, which this version does not run on; use ucx or gloo");
  throw UsageError(fmt::format("there is no transport '{}'; there are ucx and gloo", transport));
}

}  // namespace pw
