#include "app/cli/child.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>

#include "app/cli/commands.h"
#include "engine/processes/process.h"
#include "schedules/error.h"

namespace pw::cli {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kLook{20};       ///< between looks at the program
constexpr milliseconds kToEnd{10'000};  ///< that it has after a signal, before it gets the next harder one
constexpr int kHarder[]{SIGTERM, SIGKILL};

/// Its exit status, once it has ended.
std::optional<int> statusOf(pid_t child) {
  int status = 0;
  const pid_t ended = ::waitpid(child, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  return ended == child && WIFEXITED(status) ? WEXITSTATUS(status) : kNo;
}

}  // namespace

int runAndWait(std::vector<std::string> words) {
  const Interrupts interrupts;
  Pipe failed = makePipe();
  const std::string program = words.front();
  const pid_t child = startProcess({.argv = std::move(words), .environment = {}, .status = failed.write.get()});
  failed.write.close();
  std::optional<int> status;
  std::optional<Clock::time_point> harderAt;
  const int* harder = kHarder;
  while (!(status = statusOf(child))) {
    pollfd signals{interrupts.fd(), POLLIN, 0};
    ::poll(&signals, 1, static_cast<int>(kLook.count()));
    const int signal = interrupts.take();
    if (signal != 0 && !harderAt) harderAt = Clock::now() + kToEnd;
    if (signal == SIGTERM) ::kill(child, signal);  // Ctrl-C reaches it from the terminal
    if (harderAt && Clock::now() >= *harderAt && harder != std::end(kHarder)) {
      ::kill(child, *harder++);
      harderAt = Clock::now() + kToEnd;
    }
  }
  char byte = 0;
  if (::read(failed.read.get(), &byte, 1) == 1 && byte == kExecFailed)
    throw Error(fmt::format("cannot start {}; check that it may be executed", program));
  return *status;
}

}  // namespace pw::cli
