#include "engine/remote/pending_calls.h"

#include <fmt/format.h>

#include <utility>

namespace pw {
namespace {

std::exception_ptr problem(const std::string& sentence) { return std::make_exception_ptr(Error(sentence)); }

const char* const kClosed = "This worker has ended, and with it every call that it made.";

}  // namespace

std::string lostSentence(const std::string& worker, const std::string& what, const std::string& why) {
  return fmt::format("{} was lost during {}: {}", worker, what, why);
}

std::string secondsText(std::chrono::milliseconds time) { return fmt::format("{:.3g} s", std::chrono::duration<double>(time).count()); }

CallId PendingCalls::add(PendingCall call, std::chrono::milliseconds deadline) {
  const CallId id = ids_.next();
  const RemoteFuture future = call.future;
  std::string ended;
  {
    const std::lock_guard lock(mutex_);
    const std::string& why = lost_[call.to.index()];
    if (closed_) ended = kClosed;
    if (!why.empty()) ended = lostSentence(names_[call.to.index()], call.what, why);
    if (ended.empty()) {
      const auto late = [this, id, deadline] {
        const std::optional<PendingCall> missed = take(id);
        if (!missed) return;
        missed->future.fail(problem(fmt::format("{} did not answer {} within {}; see what it does, or give the call a longer deadline.",
                                                names_[missed->to.index()], missed->what, secondsText(deadline))));
        expired_();
      };
      calls_.emplace(id, Waiting{std::move(call), deadlines_.add(Deadlines::Clock::now() + deadline, late)});
    }
  }
  if (!ended.empty()) future.fail(problem(ended));
  return id;
}

std::optional<PendingCall> PendingCalls::take(CallId id) {
  std::unique_lock lock(mutex_);
  auto found = calls_.extract(id);
  lock.unlock();
  if (found.empty()) return std::nullopt;
  deadlines_.remove(found.mapped().late);
  return std::move(found.mapped().call);
}

void PendingCalls::lose(JobRank worker, const std::string& why) {
  std::vector<CallId> ended;
  {
    const std::lock_guard lock(mutex_);
    if (lost_[worker.index()].empty()) lost_[worker.index()] = why.empty() ? "the connection ended" : why;
    for (const auto& [id, waiting] : calls_) {
      if (waiting.call.to == worker) ended.push_back(id);
    }
  }
  for (const CallId id : ended) {
    if (const auto call = take(id)) call->future.fail(problem(lostSentence(names_[worker.index()], call->what, why)));
  }
}

void PendingCalls::close() {
  std::unordered_map<CallId, Waiting> calls;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    calls.swap(calls_);
  }
  for (const auto& [id, waiting] : calls) {
    deadlines_.remove(waiting.late);
    waiting.call.future.fail(problem(kClosed));
  }
}

std::size_t PendingCalls::size() const {
  const std::lock_guard lock(mutex_);
  return calls_.size();
}

}  // namespace pw
