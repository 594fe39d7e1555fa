#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <csignal>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/host/fd.h"

namespace pw {

struct Pipe {
  Fd read, write;
};

/// Throws Error: "cannot WHAT for the ranks: <errno in words>".
[[noreturn]] void throwSystemError(std::string_view what);

/// A pipe whose ends close on exec; the read end does not block. Throws Error when there are no descriptors left.
[[nodiscard]] Pipe makePipe();

/// A socket that listens on a free port of the loopback interface, and that port.
[[nodiscard]] std::pair<Fd, int> makeListener();

/// Makes SIGINT and SIGTERM pollable while it lives; then restores the previous handlers. A signal that was ignored (nohup) stays ignored.
/// One at a time in a process.
class Interrupts {
 public:
  Interrupts();
  ~Interrupts();
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  [[nodiscard]] int fd() const { return pipe_.read.get(); }  ///< readable when a signal came
  [[nodiscard]] int take() const;                            ///< the next signal that came, 0 when none did

 private:
  Pipe pipe_;
  std::array<std::pair<int, struct sigaction>, 2> saved_{{{SIGINT, {}}, {SIGTERM, {}}}};
};

/// The signal that a launcher sends to the remaining ranks when one has failed; ends a process that does not handle it.
inline constexpr int kJobFailed = SIGUSR1;
/// From now on that signal does not end this process, but is set here.
[[nodiscard]] const std::atomic<bool>& listenForFailure();

/// A program to start: what it is called with and which of our descriptors (−1: none) it gets under their own numbers.
struct ChildProgram {
  std::vector<std::string> argv;
  std::vector<std::string> environment;  ///< NAME=value, in place of our variables of those names
  int status = -1;                       ///< pipe; a failing exec writes `kExecFailed` and errno (an int) to it
  int output = -1;                       ///< becomes its stdout
  int listener = -1;
};

inline constexpr char kExecFailed = '\1';

/// Forks and executes; returns the process id. The child dies by SIGKILL when the thread that called this ends.
/// Throws Error when there can be no further process; that the program cannot be executed shows in `status`.
[[nodiscard]] pid_t startProcess(const ChildProgram& program);

}  // namespace pw
