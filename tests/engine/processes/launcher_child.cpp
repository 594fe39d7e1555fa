// A rank as the launcher's tests need it: argument 1 + RANK says what it does, as `verb` or `verb=text`.

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "engine/processes/launcher.h"

namespace {

constexpr int kDeadlineMs = 10'000;

/// Tells the test that this rank has come so far.
void say(const std::string& line) { std::cout << line << std::endl; }

[[noreturn]] void sleepForEver() {
  say("pid " + std::to_string(::getpid()));
  for (;;) ::pause();
}

/// Rank 0 of a pair: accepts rank 1's connection, waits until it breaks, and blames the connection.
int reportLostPeer(const pw::RankEnvironment& environment) {
  pollfd listener{environment.listenFd, POLLIN, 0};
  if (::poll(&listener, 1, kDeadlineMs) != 1) return 3;
  pollfd peer{::accept(environment.listenFd, nullptr, nullptr), POLLIN, 0};
  if (::poll(&peer, 1, kDeadlineMs) != 1) return 3;
  char byte = 0;
  if (::read(peer.fd, &byte, 1) > 0) return 3;
  pw::reportFailure(environment, "connection closed by peer");
  return 1;
}

/// Rank 1 of a pair: connects to rank 0 and keeps the connection until this process ends.
void connectToRankZero(const pw::RankEnvironment& environment) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(environment.masterPort));
  ::inet_pton(AF_INET, environment.masterAddress.c_str(), &address.sin_addr);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) std::_Exit(3);
}

void showEnvironment(const pw::RankEnvironment& environment) {
  const char* threads = std::getenv("OMP_NUM_THREADS");
  const char* local = std::getenv("LOCAL_RANK");
  std::cout << "world " << environment.worldSize << " local " << (local != nullptr ? local : "-") << " threads "
            << (threads != nullptr ? threads : "-") << " address " << environment.masterAddress << " listens "
            << (environment.listenFd >= 0) << " reports " << (environment.statusFd >= 0) << '\n';
}

int doAsTold(const pw::RankEnvironment& environment, const std::string& verb, const std::string& text) {
  if (verb == "exit") return text.empty() ? 0 : std::stoi(text);
  if (verb == "environment") showEnvironment(environment);
  if (verb == "token") std::cout << environment.token << '\n';
  if (verb == "lines") std::cout << "one\n\nlast without an end";
  if (verb == "flood") std::cout << std::string(3 << 20, 'x') << '\n';
  if (verb == "sleep") sleepForEver();
  if (verb == "report-lost-peer") return reportLostPeer(environment);
  if (verb == "fail" || verb == "fail-unusable") {
    pw::reportFailure(environment, text, verb == "fail-unusable");
    return 1;
  }
  if (verb == "fail-and-stay") {
    pw::reportFailure(environment, text);
    sleepForEver();
  }
  if (verb == "start-up") {  // as far as the text says, then it hangs
    pw::reportStartUp(environment, static_cast<pw::StartUp>(std::stoi(text)));
    sleepForEver();
  }
  if (verb == "stop") ::raise(SIGSTOP);
  if (verb == "stubborn") {
    std::signal(SIGTERM, SIG_IGN);
    sleepForEver();
  }
  if (verb == "kill" || verb == "connect-and-kill") {
    if (verb == "connect-and-kill") connectToRankZero(environment);
    ::raise(std::stoi(text));
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto environment = pw::rankEnvironment();
  if (!environment || environment->rank.value + 1 >= argc) return 4;
  const std::string told = argv[environment->rank.value + 1];
  const auto split = std::min(told.find('='), told.size());
  return doAsTold(*environment, told.substr(0, split), told.substr(std::min(split + 1, told.size())));
}
