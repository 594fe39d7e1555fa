#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/remote/deadlines.h"
#include "engine/remote/future.h"

namespace pw {

/// A call that was made here and has no result yet.
struct PendingCall {
  RemoteFuture future;
  JobRank to;
  std::string what;   ///< "the call of my_add"
  ContextId context;  ///< that it was made in
  Reference kept;     ///< until it ends
};

/// The calls that wait for other workers. Each ends by its result, its deadline, the loss of the worker, or the end of this one.
class PendingCalls {
 public:
  /// `expired` is called when a call has ended by its deadline.
  PendingCalls(JobRank self, std::vector<std::string> names, Deadlines& deadlines, std::function<void()> expired)
      : names_(std::move(names)), lost_(names_.size()), ids_(self), deadlines_(deadlines), expired_(std::move(expired)) {}

  [[nodiscard]] CallId add(PendingCall call, std::chrono::milliseconds deadline);
  /// The call that a result is for; nothing if it has ended before.
  [[nodiscard]] std::optional<PendingCall> take(CallId id);
  void lose(JobRank worker, const std::string& why);
  /// Ends all calls, and later ones at once.
  void close();
  [[nodiscard]] std::size_t size() const;

 private:
  struct Waiting {
    PendingCall call;
    Deadlines::Entry late;
  };

  std::vector<std::string> names_;
  std::vector<std::string> lost_;  ///< why; empty: not
  IdSource<CallId> ids_;
  Deadlines& deadlines_;
  std::function<void()> expired_;
  mutable std::mutex mutex_;
  std::unordered_map<CallId, Waiting> calls_;
  bool closed_ = false;
};

/// The sentence for a call to a worker that is gone.
[[nodiscard]] std::string lostSentence(const std::string& worker, const std::string& what, const std::string& why);
/// `1.5 s`
[[nodiscard]] std::string secondsText(std::chrono::milliseconds time);

}  // namespace pw
