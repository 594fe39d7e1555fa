#pragma once

#include <memory>
#include <string>

#include "backends/host/fd.h"

namespace pw::meeting {

/// Serves a job's dictionary by a thread of its own until it is destroyed. `listener`: a listening socket.
class Server {
 public:
  Server(Fd listener, std::string token);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace pw::meeting
