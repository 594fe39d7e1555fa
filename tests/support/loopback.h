#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <random>
#include <stdexcept>
#include <string>
#include <utility>

#include "backends/host/fd.h"

namespace pw::test {

/// A socket of this host's loopback that listens on a free port.
struct Listener {
  Fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  int port = 0;

  /// At a port, or at any free one.
  explicit Listener(int wanted = 0) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(wanted));
    socklen_t length = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(fd.get(), generic, length) != 0 || ::listen(fd.get(), SOMAXCONN) != 0 || ::getsockname(fd.get(), generic, &length) != 0)
      throw std::runtime_error("no port to listen on");
    port = ntohs(address.sin_port);
  }
};

/// A port that nobody listens on. It is below those that the system gives to connections and to listeners at any free port, so that none of
/// the tests beside this one takes it before its user does.
inline int freePort() {
  std::random_device random;
  for (int attempt = 0; attempt < 1000; ++attempt) {
    try {
      return Listener(20'000 + static_cast<int>(random() % 12'000)).port;
    } catch (const std::runtime_error&) {  // taken
    }
  }
  throw std::runtime_error("no free port");
}

/// A connection of somebody to a port of the loopback; −1 inside where nobody listens.
inline Fd connectTo(int port) {
  Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) fd.close();
  return fd;
}

inline void say(const Fd& fd, const std::string& text) {
  [[maybe_unused]] const auto sent = ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/// Whether the other side closes the connection in time; what it says until then is dropped.
inline bool isClosed(const Fd& fd, int milliseconds) {
  for (char byte = 0;;) {
    pollfd polled{fd.get(), POLLIN, 0};
    if (::poll(&polled, 1, milliseconds) != 1) return false;
    if (::recv(fd.get(), &byte, 1, 0) <= 0) return true;
  }
}

}  // namespace pw::test
