#include "backends/messages/meeting_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <exception>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "backends/host/random_bytes.h"
#include "backends/messages/meeting_wire.h"
#include "schedules/error.h"
#include "simulator/text/digest.h"

namespace pw::meeting {
namespace {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

constexpr std::chrono::seconds kProveWithin{5};
constexpr std::size_t kMostStrangers = 128;  // connections that have not proved anything; the oldest goes first

struct Waiting {
  std::string key;
  TimePoint until;
};

struct Visitor {
  Fd fd;
  TimePoint since;
  std::string nonce;  ///< ours, that the proof answers
  std::string in, out;
  bool trusted = false;
  bool gone = false;
  std::optional<Waiting> waiting;
};

}  // namespace

struct Server::Loop {
  Fd listener, wake;
  std::string token;
  std::list<Visitor> visitors;
  std::map<std::string, std::string> values;
  std::map<std::uint32_t, std::string> instances;  ///< which process each rank is
  std::thread thread;

  void run();
  void accept();
  void read(Visitor& visitor);
  void handle(Visitor& visitor);
  bool prove(Visitor& visitor);
  bool request(Visitor& visitor);
  void answer(Visitor& visitor, const std::string* value);
  void set(const std::string& key, std::string value);
  void tidy(TimePoint now);
  [[nodiscard]] std::optional<TimePoint> nextEvent() const;
};

void Server::Loop::accept() {
  for (;;) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd.get() < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    const bool noRoom = fd.get() < 0 && (errno == EMFILE || errno == ENFILE);
    const auto isStranger = [](const Visitor& v) { return !v.trusted; };
    if (noRoom || std::ranges::count_if(visitors, isStranger) >= static_cast<std::ptrdiff_t>(kMostStrangers)) {
      const auto oldest = std::ranges::find_if(visitors, isStranger);
      if (oldest != visitors.end())
        visitors.erase(oldest);
      else if (noRoom)
        ::poll(nullptr, 0, 10);  // until a descriptor is free
    }
    if (fd.get() < 0) return;
    const int yes = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Visitor& visitor = visitors.emplace_back();
    visitor.fd = std::move(fd);
    visitor.since = Clock::now();
    visitor.nonce = randomBytes(kNonce);
    visitor.out = std::string(kMagic) + visitor.nonce;
  }
}

void Server::Loop::read(Visitor& visitor) {
  std::array<char, 16384> buffer{};
  for (;;) {
    const ssize_t count = ::recv(visitor.fd.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      visitor.gone = true;
      return;
    }
    visitor.in.append(buffer.data(), static_cast<std::size_t>(count));
    handle(visitor);
    if (visitor.gone) return;
  }
}

/// Handles complete requests; drops clients that violate the protocol.
void Server::Loop::handle(Visitor& visitor) {
  while (!visitor.gone && !visitor.waiting) {
    if (!(visitor.trusted ? request(visitor) : prove(visitor))) break;
  }
  const std::size_t most = visitor.trusted ? kRequest + kLongestKey + kLongestValue : kClientHello;
  if (visitor.in.size() > most) visitor.gone = true;  // requests are answered one by one
}

bool Server::Loop::prove(Visitor& visitor) {
  const std::string_view in = visitor.in;
  const std::string_view start = in.substr(0, kMagic.size());
  if (start != kMagic.substr(0, start.size())) visitor.gone = true;
  if (visitor.gone || in.size() < kClientHello) return false;
  const std::string_view said = in.substr(kMagic.size(), kClientHello - kMagic.size() - kProof);
  const std::string_view proof = in.substr(kClientHello - kProof, kProof);
  if (!equalInConstantTime(proof, proofOf(token, "client", visitor.nonce, said))) {
    visitor.gone = true;
    return false;
  }
  const std::string nonce(said.substr(0, kNonce));
  const std::string instance(said.substr(kNonce + 4));
  const auto [known, isNew] = instances.emplace(numberIn(said, kNonce), instance);
  const char verdict = static_cast<char>(isNew || known->second == instance ? Verdict::Welcome : Verdict::Taken);
  visitor.trusted = verdict == static_cast<char>(Verdict::Welcome);
  visitor.out += verdict + proofOf(token, "server", nonce, visitor.nonce + verdict);
  visitor.in.erase(0, kClientHello);
  return visitor.trusted;
}

bool Server::Loop::request(Visitor& visitor) {
  const std::string_view in = visitor.in;
  if (in.size() < kRequest) return false;
  const std::size_t keySize = numberIn(in, 1), number = numberIn(in, 5);
  const bool sets = in[0] == 'S';
  if ((!sets && in[0] != 'G') || keySize > kLongestKey || (sets && number > kLongestValue)) {
    visitor.gone = true;
    return false;
  }
  const std::size_t whole = kRequest + keySize + (sets ? number : 0);
  if (in.size() < whole) return false;
  std::string key(in.substr(kRequest, keySize));
  std::string value(in.substr(kRequest + keySize, sets ? number : 0));
  visitor.in.erase(0, whole);
  if (sets) {
    set(key, std::move(value));
    const std::string nothing;
    answer(visitor, &nothing);
  } else if (const auto found = values.find(key); found != values.end()) {
    answer(visitor, &found->second);
  } else {
    visitor.waiting = Waiting{std::move(key), Clock::now() + std::chrono::milliseconds(number)};
  }
  return true;
}

/// `value` null: it is not set.
void Server::Loop::answer(Visitor& visitor, const std::string* value) {
  visitor.waiting.reset();
  visitor.out += value == nullptr ? '\0' : '\1';
  visitor.out += bytesOf(static_cast<std::uint32_t>(value == nullptr ? 0 : value->size()));
  if (value != nullptr) visitor.out += *value;
}

void Server::Loop::set(const std::string& key, std::string value) {
  const std::string& kept = values[key] = std::move(value);
  for (Visitor& visitor : visitors) {
    if (visitor.waiting && visitor.waiting->key == key) answer(visitor, &kept);
  }
}

/// Writes what can be written, answers who waited long enough, and drops who is gone or never proved anything.
void Server::Loop::tidy(TimePoint now) {
  for (Visitor& visitor : visitors) {
    if (visitor.waiting && now >= visitor.waiting->until) {
      answer(visitor, nullptr);
      handle(visitor);
    }
    if (!visitor.trusted && now - visitor.since > kProveWithin) visitor.gone = true;
    while (!visitor.out.empty()) {
      const ssize_t count = ::send(visitor.fd.get(), visitor.out.data(), visitor.out.size(), MSG_NOSIGNAL);
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno != EAGAIN) visitor.gone = true;
      if (count <= 0) break;
      visitor.out.erase(0, static_cast<std::size_t>(count));
    }
  }
  visitors.remove_if([](const Visitor& v) { return v.gone; });
}

std::optional<TimePoint> Server::Loop::nextEvent() const {
  std::optional<TimePoint> next;
  const auto consider = [&](TimePoint at) { next = std::min(next.value_or(at), at); };
  for (const Visitor& visitor : visitors) {
    if (visitor.waiting) consider(visitor.waiting->until);
    if (!visitor.trusted) consider(visitor.since + kProveWithin);
  }
  return next;
}

void Server::Loop::run() {
  for (;;) {
    tidy(Clock::now());
    std::vector<pollfd> fds{{wake.get(), POLLIN, 0}, {listener.get(), POLLIN, 0}};
    for (const Visitor& visitor : visitors)
      fds.push_back({visitor.fd.get(), static_cast<short>(POLLIN | (visitor.out.empty() ? 0 : POLLOUT)), 0});
    int timeout = -1;
    if (const auto next = nextEvent()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - Clock::now()).count();
      timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
    }
    ::poll(fds.data(), fds.size(), timeout);
    if (fds[0].revents != 0) return;
    auto visitor = visitors.begin();
    for (std::size_t i = 2; i < fds.size(); ++i, ++visitor) {
      if ((fds[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read(*visitor);
    }
    if (fds[1].revents != 0) accept();
  }
}

Server::Server(Fd listener, std::string token) : loop_(std::make_unique<Loop>()) {
  loop_->listener = std::move(listener);
  ::fcntl(loop_->listener.get(), F_SETFL, O_NONBLOCK);
  loop_->token = std::move(token);
  loop_->wake = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (loop_->wake.get() < 0)
    throw Error("The ranks' meeting place could not be opened: there are no descriptors left; end other programs.");
  sigset_t all, before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are the program's
  loop_->thread = std::thread([loop = loop_.get()] {
    try {
      loop->run();
    } catch (const std::exception&) {  // out of memory: nothing may leave a thread, and whoever is connected learns of it
      loop->visitors.clear();
      loop->listener.close();
    }
  });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Server::~Server() {
  ::eventfd_write(loop_->wake.get(), 1);
  loop_->thread.join();
}

}  // namespace pw::meeting
