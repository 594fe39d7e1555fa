#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "backends/communicator.h"

namespace pw {

/// Where the ranks of a job meet.
struct Rendezvous {
  Rank rank;
  int size = 1;
  std::string masterAddress = "127.0.0.1";
  int masterPort = 0;
  int listenFd = -1;           ///< rank 0: a listening socket to serve the store on; −1: bind `masterPort`
  bool storeIsElsewhere = false;  ///< another process (torchrun's agent) serves the store
  bool oneHost = true;         ///< all ranks on this host: connect over the loopback device
  std::chrono::milliseconds deadline{60000};
};

/// Connects all ranks by Gloo through c10d (TCPStore, full mesh). Throws Error naming address and port when the peers do not
/// meet within the deadline.
[[nodiscard]] std::unique_ptr<Communicator> connectGloo(const Rendezvous& rendezvous);

}  // namespace pw
