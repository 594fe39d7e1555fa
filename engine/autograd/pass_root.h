#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/autograd/pass_part.h"
#include "engine/remote/deadlines.h"
#include "engine/remote/future.h"
#include "schedules/named_values.h"

namespace pw {

/// How a backward pass finds out which messages get a gradient.
enum class BackwardMode : std::uint8_t {
  /// All do. Nothing is asked beforehand; where the loss does not use a message and something waits for it, the pass ends with an error,
  /// which a wave as SMART's finds out.
  Fast,
  /// First a wave along the edges from the roots, over all workers, marks the messages that the loss uses.
  Smart,
  /// As Fast; if it comes to rest and something waits, the wave is sent then, what waits only for unused messages continues, and nothing is
  /// computed twice. So it is right for all graphs, and costs nothing more where all messages are used, or unused ones hold nothing up.
  Auto,
};
constexpr std::string_view nameOf(BackwardMode mode) {
  switch (mode) {
    case BackwardMode::Fast: return "fast";
    case BackwardMode::Smart: return "smart";
    case BackwardMode::Auto: return "auto";
  }
  return {};
}

/// The side of a pass that started it: knows when it has come to rest, what comes next, and how it ended.
class PassRoot : public std::enable_shared_from_this<PassRoot> {
 public:
  PassRoot(const PassEnvironment& environment, std::shared_ptr<PassPart> own, BackwardMode mode, bool keepGraph, ContextId context);

  /// Sends the first messages; at the deadline the pass fails, naming who did not answer or which message was lost. `deadlines` outlives
  /// it.
  void start(Deadlines& deadlines, std::chrono::milliseconds deadline);
  /// Idle, Failed or Answer.
  void take(JobRank from, PassMessage message);
  void countIdle(JobRank from) { own_->count(from, false); }  ///< an Idle message came
  void fail(const std::exception_ptr& problem);
  /// A worker is gone; ends the pass if that had a part in it.
  void lost(JobRank worker, const std::string& why);

  [[nodiscard]] const RemoteFuture& done() const { return done_; }
  [[nodiscard]] PassId id() const { return own_->id(); }
  [[nodiscard]] ContextId context() const { return context_; }
  [[nodiscard]] std::set<JobRank> parts() const;  ///< workers that have a part in it, as far as is known here

 private:
  enum class Phase : std::uint8_t { Wave, Run, LateWave, Rest, Explain };
  struct Outgoing {
    JobRank to;
    PassMessage message;
  };

  [[nodiscard]] PassMessage message(PassStep step, bool all, Share share) const;
  [[nodiscard]] std::vector<Outgoing> next();  ///< when the whole is back; locked
  [[nodiscard]] std::vector<Outgoing> sendTo(const std::vector<JobRank>& waiting, PassStep step, Phase then);  ///< locked
  void sendAll(std::vector<Outgoing> messages);
  void ask();
  [[nodiscard]] std::string diagnosis() const;
  [[nodiscard]] std::string lostMessage() const;

  const PassEnvironment& environment_;
  const std::shared_ptr<PassPart> own_;
  const BackwardMode mode_;
  const bool keepGraph_;
  const ContextId context_;
  const RemoteFuture done_;

  mutable std::mutex mutex_;
  Phase phase_ = Phase::Run;
  Shares back_;
  std::map<JobRank, bool> waits_;  ///< of each worker that had a part: whether functions wait there
  std::map<JobRank, PassMessage> answers_;
};

}  // namespace pw
