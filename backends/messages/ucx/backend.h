#pragma once

#include "backends/messages/ucx/communicator.h"
#include "backends/messages/ucx/link.h"

namespace pw {

/// What the UCX module offers. It is a shared library loaded on demand: linked statically, UCX would cost 2 ms at each start, read its
/// settings before we could set ours, and install its crash handlers in programs that never send a message.
struct UcxBackend {
  std::unique_ptr<Communicator> (*connect)(const Rendezvous&, const KeyValueStore&);
  MessageLink (*connectLink)(const Rendezvous&, const KeyValueStore&, LinkEvents);
};

}  // namespace pw
