#pragma once

// Jobs of three processes in which one is killed, stopped, or loses a message, at a given message of its own.

#include <chrono>
#include <compare>
#include <string>
#include <vector>

#include "backends/messages/transport.h"
#include "engine/remote/post.h"

namespace pw::test {

inline constexpr int kTrialWorkers = 3;

/// What a message is for: its kind, and the type of a call, or the step of autograd's or the shutdown's.
struct ProtocolStep {
  MessageKind kind{};
  int detail = -1;
  auto operator<=>(const ProtocolStep&) const = default;
};
[[nodiscard]] std::string nameOf(const ProtocolStep& step);

enum class Harm : std::uint8_t { None, Kill, Stop, Drop };
[[nodiscard]] std::string nameOf(Harm harm);

/// The job: worker 0 has a function of worker 1 computed through workers 2 and 0, keeps and fetches values there, runs a backward pass, and
/// ends its context, in SMART mode and in AUTO; then all end in good order.
struct Trial {
  Transport transport{};
  Harm harm{};
  int worker = 0;  ///< whom it happens to, when it is about to send
  ProtocolStep step = {};
  int nth = 1;  ///< such message of this worker
};

/// How a process ended.
struct WorkerEnd {
  bool inTime = false;
  bool well = false;
  std::string problem;
  int signal = 0;                  ///< that ended it
  std::vector<ProtocolStep> sent;  ///< where nothing was to happen
};

struct TrialResult {
  int to = -1;  ///< the receiver of the message; −1: it was not sent, so that nothing happened
  std::vector<WorkerEnd> ends;
};

/// Runs the trials, several at a time; each process gets `longest` from its start. None is left afterwards.
[[nodiscard]] std::vector<TrialResult> runTrials(const std::vector<Trial>& trials, int atOnce, std::chrono::milliseconds longest);

}  // namespace pw::test
