#include "backends/messages/meeting.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <mutex>
#include <vector>

#include <fmt/format.h>

#include "backends/host/fd.h"
#include "backends/host/random_bytes.h"
#include "backends/messages/local_address.h"
#include "backends/messages/meeting_server.h"
#include "backends/messages/meeting_wire.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using std::chrono::milliseconds;

constexpr milliseconds kRetry{50};    // between attempts to connect
constexpr milliseconds kGlance{200};  // how often a wait checks whether the job has failed
constexpr milliseconds kSlack{1000};  // added to the time in which rank 0 must answer: it may have to wait for a core

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

std::string placeOf(const Rendezvous& r) { return fmt::format("{}:{}", r.masterAddress, r.masterPort); }

void requireJob(const Rendezvous& r) {
  if (r.jobFailed != nullptr && *r.jobFailed) throw Error(failedSentence());
}

/// Waits until the socket is ready; false when the time is over first.
bool waitFor(int fd, short events, TimePoint until, const Rendezvous& r) {
  for (;;) {
    requireJob(r);
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0) return false;
    pollfd polled{fd, events, 0};
    if (::poll(&polled, 1, static_cast<int>(std::min(left, kGlance).count())) > 0) return true;
  }
}

enum class Transfer { Done, Late, Lost };

Transfer sendAll(int fd, std::string_view bytes, TimePoint until, const Rendezvous& r) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR && errno != EAGAIN) {
      return Transfer::Lost;
    } else if (!waitFor(fd, POLLOUT, until, r)) {
      return Transfer::Late;
    }
  }
  return Transfer::Done;
}

Transfer receive(int fd, std::string& bytes, std::size_t size, TimePoint until, const Rendezvous& r) {
  bytes.assign(size, '\0');
  for (std::size_t at = 0; at < size;) {
    const ssize_t count = ::recv(fd, bytes.data() + at, size - at, 0);
    if (count > 0) {
      at += static_cast<std::size_t>(count);
    } else if (count == 0 || (errno != EINTR && errno != EAGAIN)) {
      return Transfer::Lost;
    } else if (!waitFor(fd, POLLIN, until, r)) {
      return Transfer::Late;
    }
  }
  return Transfer::Done;
}

/// Where rank 0 serves. Ranks of one host meet at its loopback.
std::vector<SocketAddress> addressesOf(const Rendezvous& r) {
  addrinfo wanted{};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host = r.oneHost ? "127.0.0.1" : r.masterAddress;
  if (const int failed = ::getaddrinfo(host.c_str(), std::to_string(r.masterPort).c_str(), &wanted, &found); failed != 0) {
    throw Error(fmt::format("The host {} could not be found ({}); set MASTER_ADDR to its IP address", host, ::gai_strerror(failed)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.length = one->ai_addrlen;
  }
  ::freeaddrinfo(found);
  return addresses;
}

/// A connection, or none with `reason`.
Fd connectTo(const SocketAddress& address, TimePoint until, const Rendezvous& r, std::string& reason) {
  Fd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0)
    throw Error(fmt::format("There is no socket left for the ranks' meeting ({}); end other programs", std::strerror(errno)));
  int error = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS || error == EINTR) {
    socklen_t size = sizeof error;
    if (!waitFor(fd.get(), POLLOUT, until, r))
      error = ETIMEDOUT;
    else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0)
      error = errno;
  }
  if (error == 0) return fd;
  if (reason.empty() || error != ETIMEDOUT)
    reason = error == ECONNREFUSED ? "nobody listens there" : std::strerror(error);  // the last attempt ends with our time
  return {};
}

Fd bindTo(int family, const Rendezvous& r) {
  Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return fd;
  const int yes = 1, no = 0;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in);
  const auto port = htons(static_cast<std::uint16_t>(r.masterPort));
  if (family == AF_INET6) {
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    auto& six = reinterpret_cast<sockaddr_in6&>(address);
    six.sin6_family = AF_INET6;
    six.sin6_port = port;
    size = sizeof six;
  } else {
    const bool loopback = r.masterAddress == "localhost" || isLoopback(r.masterAddress);
    auto& four = reinterpret_cast<sockaddr_in&>(address);
    four.sin_family = AF_INET;
    four.sin_port = port;
    four.sin_addr.s_addr = htonl(loopback ? INADDR_LOOPBACK : INADDR_ANY);
  }
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) return {};
  return fd;
}

/// Rank 0's listening socket.
Fd listenerOf(const Rendezvous& r) {
  if (r.listenFd >= 0) return Fd(r.listenFd);
  const bool loopback = r.masterAddress == "localhost" || isLoopback(r.masterAddress);
  Fd fd = loopback ? Fd() : bindTo(AF_INET6, r);  // serves both kinds of addresses
  if (fd.get() < 0) fd = bindTo(AF_INET, r);
  if (fd.get() < 0) {
    throw Error(
        fmt::format("the ranks cannot meet at port {} of this host ({}); another job may use it: set another MASTER_PORT for all ranks",
                    r.masterPort, std::strerror(errno)));
  }
  return fd;
}

int portOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

std::string notAnswering(const Rendezvous& r, const std::string& reason) {
  return fmt::format(
      "rank 0 did not answer at {} within {}{}; check that it is started, does not hang, and that this host can reach that address, or "
      "raise --timeout",
      placeOf(r), inWords(r.deadline), reason.empty() ? "" : " (" + reason + ")");
}

/// The rank that a key belongs to: `ucx/1` is rank 1's.
std::string rankIn(const std::string& key) {
  const std::string number = key.substr(key.rfind('/') + 1);
  const bool isNumber = !number.empty() && number.find_first_not_of("0123456789") == std::string::npos;
  return isNumber ? "rank " + number : "another rank";
}

}  // namespace

namespace meeting {

std::string proofOf(const std::string& token, std::string_view label, std::string_view challenge, std::string_view said) {
  return hmacSha256(token, Sha256().addField(label).addField(challenge).addField(said).finish());
}

std::string bytesOf(std::uint32_t number) {
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xFFU);
  return bytes;
}

std::uint32_t numberIn(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 4; i > 0; --i) number = number << 8U | static_cast<unsigned char>(bytes[at + i - 1]);
  return number;
}

}  // namespace meeting

struct Meeting::Connection {
  Rendezvous rendezvous;
  std::unique_ptr<meeting::Server> server;  ///< on rank 0
  std::mutex mutex;
  Fd fd;

  void connect();
  [[nodiscard]] bool introduce(TimePoint until, std::string& reason);
  [[nodiscard]] std::optional<std::string> request(char operation, const std::string& key, std::uint32_t number, std::string_view value,
                                                   milliseconds patience);
};

/// Mutual proof of the token; false if it failed but may succeed later.
bool Meeting::Connection::introduce(TimePoint until, std::string& reason) {
  using namespace meeting;
  std::string hello, answer;
  const auto arrived = [&](std::string& bytes, std::size_t size) {
    const Transfer transfer = receive(fd.get(), bytes, size, until, rendezvous);
    if (transfer == Transfer::Late) throw Error(notAnswering(rendezvous, reason.empty() ? "it accepts connections but is silent" : reason));
    return transfer == Transfer::Done;
  };
  if (!arrived(hello, kServerHello) || !hello.starts_with(kMagic)) {
    reason = "the process listening there is not part of this job";
    return false;
  }
  const std::string challenge = hello.substr(kMagic.size()), nonce = randomBytes(kNonce);
  static const std::string instance = randomBytes(8);  // of this process
  const std::string said = nonce + bytesOf(static_cast<std::uint32_t>(rendezvous.rank.value)) + instance;
  if (sendAll(fd.get(), std::string(kMagic) + said + proofOf(rendezvous.token, "client", challenge, said), until, rendezvous) !=
          Transfer::Done ||
      !arrived(answer, kServerAnswer) ||
      !equalInConstantTime(answer.substr(1), proofOf(rendezvous.token, "server", nonce, challenge + answer[0]))) {
    reason = "the process listening there has a different token: it belongs to another job, or PIPEWRIGHT_JOB_TOKEN differs";
    return false;
  }
  if (answer[0] == static_cast<char>(Verdict::Taken)) {
    throw UsageError(
        fmt::format("Another process is rank {} of the job at {} already; give each process its own RANK, and each job its own MASTER_PORT",
                    rendezvous.rank.value, placeOf(rendezvous)));
  }
  return true;
}

void Meeting::Connection::connect() {
  const TimePoint until = Clock::now() + rendezvous.deadline;
  const std::vector<SocketAddress> addresses = addressesOf(rendezvous);
  std::string reason;
  for (;;) {
    for (const SocketAddress& address : addresses) {
      fd = connectTo(address, until, rendezvous, reason);
      if (fd.get() < 0) continue;
      const int yes = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      if (introduce(until, reason)) return;
      fd.close();
    }
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    if (left.count() <= 0) throw Error(notAnswering(rendezvous, reason));
    ::poll(nullptr, 0, static_cast<int>(std::min(left, kRetry).count()));
    requireJob(rendezvous);
  }
}

std::optional<std::string> Meeting::Connection::request(char operation, const std::string& key, std::uint32_t number,
                                                        std::string_view value, milliseconds patience) {
  using namespace meeting;
  assert(key.size() <= kLongestKey && value.size() <= kLongestValue);
  const std::lock_guard lock(mutex);
  const TimePoint until = Clock::now() + patience + kSlack;
  const auto require = [&](Transfer transfer) {
    if (transfer == Transfer::Done) return;
    fd.close();  // half an answer may be in it
    if (transfer == Transfer::Late) throw Error(notAnswering(rendezvous, ""));
    throw Error(fmt::format("rank 0, at which the ranks meet ({}), has ended; the reason is in that rank's message", placeOf(rendezvous)));
  };
  if (fd.get() < 0) require(Transfer::Lost);
  require(sendAll(fd.get(), operation + bytesOf(static_cast<std::uint32_t>(key.size())) + bytesOf(number) + key + std::string(value), until,
                  rendezvous));
  std::string head, found;
  require(receive(fd.get(), head, kAnswer, until, rendezvous));
  const std::size_t size = numberIn(head, 1);
  if (size > kLongestValue) require(Transfer::Lost);
  require(receive(fd.get(), found, size, until, rendezvous));
  if (head[0] == '\0') return std::nullopt;
  return found;
}

void Meeting::set(const std::string& key, const std::string& value) const {
  static_cast<void>(
      connection_->request('S', prefix_ + key, static_cast<std::uint32_t>(value.size()), value, connection_->rendezvous.deadline));
}

std::optional<std::string> Meeting::find(const std::string& key, milliseconds patience) const {
  const auto number = static_cast<std::uint32_t>(std::clamp<std::int64_t>(patience.count(), 0, 1 << 30));
  return connection_->request('G', prefix_ + key, number, {}, patience);
}

Meeting Meeting::part(const std::string& name) const {
  Meeting part = *this;
  part.prefix_ += name + ".";
  return part;
}

KeyValueStore Meeting::dictionary() const {
  KeyValueStore store;
  store.set = [meeting = *this](const std::string& key, const std::string& value) { meeting.set(key, value); };
  store.get = [meeting = *this](const std::string& key) {
    const Rendezvous& rendezvous = meeting.connection_->rendezvous;
    auto value = meeting.find(key, rendezvous.deadline);
    if (!value) throw Error(missingSentence(rankIn(key), rendezvous));
    return std::move(*value);
  };
  return store;
}

int Meeting::port() const { return connection_->rendezvous.masterPort; }

Meeting meet(const Rendezvous& rendezvous) {
  auto connection = std::make_shared<Meeting::Connection>();
  connection->rendezvous = rendezvous;
  if (rendezvous.rank.value == 0) {
    Fd listener = listenerOf(rendezvous);
    connection->rendezvous.masterPort = portOf(listener.get());
    connection->rendezvous.oneHost = true;  // for its own connection
    connection->server = std::make_unique<meeting::Server>(std::move(listener), rendezvous.token);
  }
  connection->connect();
  return Meeting(std::move(connection));
}

std::string missingSentence(const std::string& ranks, const Rendezvous& rendezvous) {
  return fmt::format(
      "{} did not come to {} within {}; check that it is started, whether it hangs and that it reaches that address, or raise "
      "--timeout",
      ranks, placeOf(rendezvous), inWords(rendezvous.deadline));
}

}  // namespace pw
