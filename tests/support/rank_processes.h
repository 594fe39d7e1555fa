#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace pw::test {

/// Ranks as processes of communicator_child, which meet through this one.
class Processes {
 public:
  Processes(const std::string& program, const std::string& verb, int ranks, const std::string& transports) : program_(program) {
    for (int r = 0; r < ranks; ++r) start(verb, r, ranks, transports);
    std::vector<std::string> addresses;
    for (const int socket : sockets_) addresses.push_back(packetFrom(socket));
    for (std::size_t to = 0; to < sockets_.size(); ++to) {
      for (std::size_t from = 0; from < addresses.size(); ++from) {
        if (from == to) continue;  // a packet nobody reads would reset the socket
        if (::send(sockets_[to], addresses[from].data(), addresses[from].size(), MSG_NOSIGNAL) < 0)
          throw std::runtime_error("a rank ended early");
      }
    }
  }
  ~Processes() {
    for (std::size_t r = 0; r < pids_.size(); ++r) {
      ::close(sockets_[r]);
      if (pids_[r] > 0) ::kill(pids_[r], SIGKILL);
      reap(r);
    }
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  /// Waits for the process to end; its status.
  int reap(std::size_t rank) {
    int status = 0;
    if (pids_[rank] > 0) ::waitpid(std::exchange(pids_[rank], -1), &status, 0);
    return status;
  }

  /// How the rank ended in its own words.
  [[nodiscard]] std::string endOf(std::size_t rank) const {
    const std::string packet = packetFrom(sockets_[rank]);
    return packet.substr(packet.find('\0') + 1);
  }

 private:
  static constexpr std::chrono::milliseconds kPatience{40'000};

  void start(const std::string& verb, int rank, int ranks, const std::string& transports) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("no socket");
    const std::string number = std::to_string(rank), count = std::to_string(ranks), socket = std::to_string(ends[1]);
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::fcntl(ends[1], F_SETFD, 0);
      const char* name = program_.c_str();
      ::execl(name, name, verb.c_str(), number.c_str(), count.c_str(), socket.c_str(), transports.empty() ? nullptr : transports.c_str(),
              nullptr);
      ::_exit(127);
    }
    ::close(ends[1]);
    pids_.push_back(pid);
    sockets_.push_back(ends[0]);
  }

  static std::string packetFrom(int socket) {
    std::array<char, 65536> packet{};
    pollfd fd{socket, POLLIN, 0};
    const ssize_t size = ::poll(&fd, 1, static_cast<int>(kPatience.count())) == 1 ? ::recv(socket, packet.data(), packet.size(), 0) : -1;
    if (size <= 0) throw std::runtime_error("a rank said nothing");
    return {packet.data(), static_cast<std::size_t>(size)};
  }

  std::string program_;
  std::vector<pid_t> pids_;
  std::vector<int> sockets_;
};

}  // namespace pw::test
