#include "backends/messages/local_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr const char* kAnyPort = "9";  // "discard": nothing is sent

std::string textOf(const sockaddr_storage& address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int failed =
      ::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed == 0 ? std::string(text.data()) : std::string();
}

/// Empty, with errno set, where there is no way to the address.
std::string sourceFor(const addrinfo& target) {
  const int fd = ::socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  const bool known =
      ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 && ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  return known ? textOf(own, length) : std::string();
}

}  // namespace

std::string localAddressTowards(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (const int failed = ::getaddrinfo(host.c_str(), kAnyPort, &wanted, &found); failed != 0) {
    throw Error(fmt::format("The host {} could not be found ({}); set MASTER_ADDR to its IP address", host, ::gai_strerror(failed)));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> held(found, &::freeaddrinfo);
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    std::string address = sourceFor(*target);
    if (!address.empty()) return address;
  }
  throw Error(fmt::format("This host has no route to {} ({}); check that they share a network", host, std::strerror(errno)));
}

bool isLoopback(const std::string& address) {
  in_addr four{};
  if (::inet_pton(AF_INET, address.c_str(), &four) == 1) return (ntohl(four.s_addr) >> 24U) == 127;
  in6_addr six{};
  return ::inet_pton(AF_INET6, address.c_str(), &six) == 1 && IN6_IS_ADDR_LOOPBACK(&six) != 0;
}

std::string addressForPeers(const Rendezvous& rendezvous, const KeyValueStore& store) {
  const auto key = [](int rank) { return "address/" + std::to_string(rank); };
  const std::string own = localAddressTowards(rendezvous.masterAddress);
  store.set(key(rendezvous.rank.value), own);
  if (!isLoopback(own)) return own;
  for (int r = 0; r < rendezvous.size; ++r) {
    const std::string peer = r == rendezvous.rank.value ? own : store.get(key(r));
    if (!isLoopback(peer)) return localAddressTowards(peer);
  }
  return own;
}

}  // namespace pw
