#pragma once

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/messages/channel/link.h"
#include "backends/messages/communicator.h"
#include "backends/messages/rendezvous.h"

// Internal to the UCX module: what its connections share.

namespace pw {

/// A context and a worker of UCX for one thread at a time, which can be waited for by a descriptor.
struct UcxWorker {
  /// `features` beside wakeup. Throws Error saying what UCX could not do.
  UcxWorker(const Rendezvous& rendezvous, std::uint64_t features, ucs_thread_mode_t threads);

  std::unique_ptr<ucp_context, decltype(&ucp_cleanup)> context;
  std::unique_ptr<ucp_worker, decltype(&ucp_worker_destroy)> worker;
  int fd = -1;  ///< readable when something happened; the worker's own
};

/// Throws Error saying what UCX could not do, unless the status is good.
void requireUcx(ucs_status_t status, const char* what);

/// The worker's addresses of all ranks, this one's included, exchanged at the store under `NAME/RANK`. UCX trusts the bytes of an address,
/// and may end the process over wrong ones: they carry a proof that a rank of this job wrote them. Throws Error naming a rank whose is
/// forged, and as the store does.
[[nodiscard]] std::vector<std::string> exchangedAddresses(const UcxWorker& worker, const std::string& name, const Rendezvous& rendezvous,
                                                          const KeyValueStore& store);

/// An endpoint that calls `lost(peer)` once its connection breaks. Throws Error naming the rank to which there is no way.
[[nodiscard]] ucp_ep_h connectTo(const UcxWorker& worker, JobRank rank, const std::string& address, ucp_err_handler_cb_t lost, void* peer);

/// What the module offers, see connectUcx and ucxLink.
[[nodiscard]] std::unique_ptr<Communicator> newUcxCommunicator(const Rendezvous& rendezvous, const KeyValueStore& store);
[[nodiscard]] MessageLink newUcxLink(const Rendezvous& rendezvous, const KeyValueStore& store, LinkEvents events);

}  // namespace pw
