#pragma once

// Internal to the room: what stands behind Remote.

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/remote/call_threads.h"
#include "engine/remote/deadlines.h"
#include "engine/remote/pending_calls.h"
#include "engine/remote/post.h"
#include "engine/remote/references.h"
#include "engine/remote/remote.h"
#include "engine/remote/shutdown.h"
#include "engine/remote/value_wire.h"

namespace pw {

/// What a call requests.
enum class CallType : std::uint8_t {
  Return,  ///< the function's result
  Keep,    ///< that it stays, as the value of a reference
  Fetch,   ///< the value of a reference
};

/// A call that came from a worker.
struct IncomingCall {
  CallId id;
  CallType type{};
  JobRank from;
  ContextId context;
  ReferenceId reference;
  std::string function;
  RemoteValue arguments;
  Deadlines::Clock::time_point until;  ///< its caller waits no longer
};

struct Remote::Impl {
  Impl(Remote& remote, RemoteSettings given, Send send);

  RemoteFuture call(CallType type, JobRank to, const std::string& function, const RemoteValue& arguments, const Reference& reference,
                    Deadline deadline);
  void handleCall(JobRank from, std::string_view body, std::vector<HeldBuffer> parts);
  void handleResult(JobRank from, std::string_view body, std::vector<HeldBuffer> parts);
  /// The rest of a result, for that call if it has not ended before.
  void readResult(JobRank from, bool isValue, Unpacker& in, std::vector<HeldBuffer>& parts, const std::optional<PendingCall>& call);
  void handleGiveBack(std::string_view body);
  void handleLost(std::string_view body);
  /// Ends all that waits for a worker, whose letters are dropped from now on. `tells`: the others first, so that a worker that ends because
  /// of this loss is not taken for its cause.
  void lose(JobRank worker, const std::string& why, bool tells);
  void tellLost(JobRank worker, const std::string& why);
  /// Why a worker was lost, with the first loss in this job, which may be the reason.
  [[nodiscard]] std::string withFirstLoss(JobRank worker, const std::string& why);
  /// Of a call, if none is given. One that a function makes ends before the call that the function serves, so that its caller hears who did
  /// not answer; by so little that calls can nest as deeply as there are threads.
  [[nodiscard]] std::chrono::milliseconds deadlineOf(CallType type, Deadline given) const;
  void execute(const IncomingCall& call);
  void answer(const IncomingCall& call, const RemoteFuture& result);
  /// Ends a call that counts as executing by a problem; what it was to keep is that problem, too.
  void refuse(const IncomingCall& call, const std::exception_ptr& problem);
  void answerValue(const IncomingCall& call, const RemoteValue& value);
  void answerProblem(const IncomingCall& call, const std::exception_ptr& thrown);
  [[nodiscard]] Function find(const std::string& name) const;
  [[nodiscard]] bool isOpen(ContextId context) const { return context && hooks.isOpen && hooks.isOpen(context); }
  [[nodiscard]] CallCounts callCounts();

  Remote& face;
  RemoteSettings settings;
  CallHooks hooks;
  Deadlines deadlines;
  Post post;
  PendingCalls pending;
  std::shared_ptr<References> references;
  mutable std::mutex mutex;
  std::unordered_map<std::string, Function> functions;
  CallCounts counted;
  std::string firstLoss;  ///< as a sentence
  JobRank firstLost;
  std::atomic<std::size_t> executing = 0;
  Shutdown shutdown;
  CallThreads threads;  ///< ends first: its tasks use the others
};

}  // namespace pw
