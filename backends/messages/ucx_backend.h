#pragma once

#include "backends/messages/ucx_communicator.h"

namespace pw {

/// What the UCX module offers. It is a shared library loaded on demand: linked, UCX would cost each start 2 ms, read its settings before we
/// could set ours, and put its handlers of crashes into programs that never send a message.
struct UcxBackend {
  std::unique_ptr<Communicator> (*connect)(const Rendezvous&, const KeyValueStore&);
};

}  // namespace pw
