#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/autograd/context.h"
#include "engine/autograd/pass_message.h"
#include "engine/autograd/watch.h"
#include "engine/remote/call_threads.h"

namespace pw {

/// What the parts of passes on one worker share.
struct PassEnvironment {
  JobRank self;
  std::vector<std::string> names;  ///< of all workers
  const AutogradFunctions& functions;
  CallThreads& threads;
  std::function<void(JobRank to, PassMessage)> send;  ///< to the own worker: handled before it returns
  std::function<bool(JobRank)> isLost;
  const AutogradWatch& watch;
};

/// One worker's part of a backward pass: takes the pass's messages one after the other, runs what they make ready, and gives its shares of
/// the pass back to the initiator whenever it has nothing left to do. Every message of a pass carries a share, halves of the sender's; so
/// when the whole is back at the initiator, no worker is active and no message is on its way.
class PassPart : public std::enable_shared_from_this<PassPart> {
 public:
  /// `roots`: of the initiator; others have none.
  PassPart(const PassEnvironment& environment, std::shared_ptr<AutogradContext> context, PassId id, bool keepGraph,
           const std::vector<TensorHandle>& roots);

  /// Start, Reach, Gradient, Resume or Explain.
  void take(JobRank from, PassMessage message);
  /// Ends it: messages that are still here are dropped.
  void stop();
  /// Counts a message for `answer`.
  void count(JobRank peer, bool isSent);
  [[nodiscard]] PassMessage answer() const;
  [[nodiscard]] PassId id() const { return id_; }

 private:
  void work();
  void refuse();  ///< no thread can work
  void run(PassMessage& message);
  void reach(const PassMessage& message);
  void expect(bool all);
  /// From the gradients of a message that was sent, or (none) from the roots and what may continue.
  void runPiece(AutogradMessageId message, const NodeHandle& send, const std::vector<TensorHandle>& gradients);
  void explain();  ///< throws UsageError for a message that is not used and holds something up here, if there is one
  void sendOn(JobRank to, PassMessage message);
  [[nodiscard]] NodeHandle sendFunction(AutogradMessageId message) const;
  [[nodiscard]] GradientSink sink();
  [[nodiscard]] PassMessage message(PassStep step) const;
  [[nodiscard]] ContextId contextId() const;
  void fail(const std::exception_ptr& problem);

  const PassEnvironment& environment_;
  const std::weak_ptr<AutogradContext> context_;
  const PassId id_;
  const bool keepGraph_;
  const LocalPassHandle local_;

  // Of the thread that works.
  bool expected_ = false, all_ = false;
  std::set<AutogradMessageId> used_, fired_;

  mutable std::mutex mutex_;
  std::deque<PassMessage> messages_;
  Shares shares_;
  bool working_ = false, stopped_ = false;
  std::vector<std::uint64_t> sent_, received_;
};

}  // namespace pw
