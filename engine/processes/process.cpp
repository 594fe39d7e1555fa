#include "engine/processes/process.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

/// Where the signal handler writes the signal's number; −1 while nobody listens. Global because a handler gets no argument of ours.
volatile std::sig_atomic_t interruptFd = -1;

extern "C" void onInterrupt(int signal) {
  const int saved = errno;
  const char byte = static_cast<char>(signal);
  if (interruptFd >= 0) {
    [[maybe_unused]] const auto written = ::write(interruptFd, &byte, 1);
  }
  errno = saved;
}

/// For the handler, too.
std::atomic<bool> jobFailed{false};
static_assert(std::atomic<bool>::is_always_lock_free);

extern "C" void onJobFailed(int /*signal*/) { jobFailed = true; }

/// Pointers as execve wants them.
std::vector<char*> pointersTo(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Our environment with `ours` (NAME=value) in place of the variables of those names.
std::vector<std::string> environmentWith(const std::vector<std::string>& ours) {
  const auto nameOf = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> all = ours;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = nameOf(*entry);
    if (name == "PIPEWRIGHT_LISTEN_FD") continue;  // of an outer launcher: that descriptor is not passed on
    if (std::ranges::none_of(ours, [&](const std::string& o) { return nameOf(o) == name; })) all.emplace_back(*entry);
  }
  return all;
}

/// What a child needs between fork and exec, where it may neither allocate nor lock.
struct Birth {
  pid_t parent = 0;
  char* const* argv = nullptr;
  char* const* environment = nullptr;
  int status = -1, output = -1, listener = -1;
  sigset_t mask{};
};

/// The child's life until exec: async-signal-safe calls only. All signals are blocked on entry.
[[noreturn]] void becomeProgram(const Birth& birth) noexcept {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != birth.parent) ::_exit(1);  // the parent died before the line above
  if (birth.output >= 0) ::dup2(birth.output, STDOUT_FILENO);
  if (birth.status >= 0) ::fcntl(birth.status, F_SETFD, 0);
  if (birth.listener >= 0) ::fcntl(birth.listener, F_SETFD, 0);
  // Our handler would swallow a SIGTERM that comes before exec.
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction action {};
    ::sigaction(signal, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    ::sigaction(signal, &action, nullptr);
  }
  ::sigprocmask(SIG_SETMASK, &birth.mask, nullptr);
  ::execve(birth.argv[0], birth.argv, birth.environment);
  const int error = errno;
  std::array<char, 1 + sizeof error> message{kExecFailed};
  std::memcpy(message.data() + 1, &error, sizeof error);
  [[maybe_unused]] const auto written = ::write(birth.status, message.data(), message.size());
  ::_exit(127);
}

}  // namespace

void throwSystemError(std::string_view what) {
  throw Error(fmt::format("cannot {} for the ranks: {}; end other programs or start fewer ranks", what, std::strerror(errno)));
}

Pipe makePipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throwSystemError("open a pipe");
  Pipe pipe{Fd(ends[0]), Fd(ends[1])};
  if (::fcntl(ends[0], F_SETFL, O_NONBLOCK) != 0) throwSystemError("set up a pipe");
  return pipe;
}

std::pair<Fd, int> makeListener() {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (socket.get() < 0 || ::bind(socket.get(), generic, size) != 0 || ::listen(socket.get(), SOMAXCONN) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    throwSystemError("listen on 127.0.0.1");
  }
  return {std::move(socket), ntohs(address.sin_port)};
}

const std::atomic<bool>& listenForFailure() {
  struct sigaction action {};
  action.sa_handler = &onJobFailed;  // without SA_RESTART: a wait that sleeps wakes up
  ::sigaction(kJobFailed, &action, nullptr);
  return jobFailed;
}

Interrupts::Interrupts() : pipe_(makePipe()) {
  assert(interruptFd < 0 && "one at a time");
  ::fcntl(pipe_.write.get(), F_SETFL, O_NONBLOCK);  // a handler must not block
  interruptFd = pipe_.write.get();
  struct sigaction ours {};
  ours.sa_handler = onInterrupt;
  ours.sa_flags = SA_RESTART;
  sigemptyset(&ours.sa_mask);
  for (auto& [signal, old] : saved_) {
    ::sigaction(signal, nullptr, &old);
    if (old.sa_handler != SIG_IGN) ::sigaction(signal, &ours, nullptr);
  }
}

Interrupts::~Interrupts() {
  for (const auto& [signal, old] : saved_) ::sigaction(signal, &old, nullptr);
  interruptFd = -1;
}

int Interrupts::take() const {
  char byte = 0;
  return ::read(fd(), &byte, 1) == 1 ? byte : 0;
}

pid_t startProcess(const ChildProgram& program) {
  std::vector<std::string> argv = program.argv;
  std::vector<std::string> environment = environmentWith(program.environment);
  const std::vector<char*> argvPointers = pointersTo(argv);
  const std::vector<char*> environmentPointers = pointersTo(environment);
  Birth birth{::getpid(), argvPointers.data(), environmentPointers.data(), program.status, program.output, program.listener, {}};
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &birth.mask);
  const pid_t pid = ::fork();
  if (pid == 0) becomeProgram(birth);
  const int error = errno;
  ::pthread_sigmask(SIG_SETMASK, &birth.mask, nullptr);
  errno = error;
  if (pid < 0) throwSystemError("start a process");
  return pid;
}

}  // namespace pw
