#include "backends/messages/ucx/backend.h"

#include <cstdlib>
#include <utility>
#include <vector>

#include "backends/host/environment.h"
#include "backends/host/module.h"

namespace pw {
namespace {

/// The settings of UCX that we want another default of.
std::vector<EnvironmentVariable> settings() {
  return {
      {"UCX_LOG_LEVEL", "error"},          // what goes wrong comes as an exception; warnings beside it only confuse
      {"UCX_HANDLE_ERRORS", "none"},       // no handlers of SIGSEGV and its like: they are the program's
      {"UCX_MEM_EVENTS", "n"},             // no patching of malloc and mmap, which LibTorch's allocators use
      {"UCX_MEM_MMAP_HOOK_MODE", "none"},  // likewise
      {"UCX_POSIX_ERROR_HANDLING", "y"},   // else endpoints that notice lost peers do without shared memory
      {"UCX_SYSV_ERROR_HANDLING", "y"},    // likewise
      {"UCX_CMA_MEMORY_INVALIDATE", "y"},  // likewise, without the single copy from process to process
      {"UCX_RESOLVE_REMOTE_EP_ID", "on"},  // connect fully at the start: a peer that ends meanwhile is not noticed
      {"UCX_KEEPALIVE_INTERVAL", "1s"},    // how soon a process of this host that died is noticed
  };
}

const UcxBackend& ucxBackend() {
  static const auto* backend = [] {
    // UCX reads these when its libraries are loaded.
    setDefaultVariables(settings());
    return static_cast<const UcxBackend*>(
        loadModule("libpw_ucx.so", "pipewrightUcxBackend", "install libucx0 and build with ./dev build, or use the transport gloo."));
  }();
  return *backend;
}

}  // namespace

std::unique_ptr<Communicator> connectUcx(const Rendezvous& rendezvous, const KeyValueStore& store) {
  return ucxBackend().connect(rendezvous, store);
}

LinkMaker ucxLink(const Rendezvous& rendezvous, const KeyValueStore& store) {
  return {.rank = rendezvous.rank,
          .size = rendezvous.size,
          .token = rendezvous.token,
          .writesToPeers = std::getenv("UCX_TLS") == nullptr,  // who chooses UCX's ways between processes gets these alone
          .connect = [=](LinkEvents events) { return ucxBackend().connectLink(rendezvous, store, std::move(events)); }};
}

}  // namespace pw
