#include "engine/autograd/pass_root.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cctype>
#include <utility>

#include "engine/remote/pending_calls.h"

namespace pw {
namespace {

/// Whether it has the worker's name as a word: `rank 1` is not in `rank 12`.
bool isNamedIn(const std::string& text, const std::string& worker) {
  for (std::size_t at = text.find(worker); at != std::string::npos; at = text.find(worker, at + 1)) {
    const std::size_t end = at + worker.size();
    if (end == text.size() || std::isalnum(static_cast<unsigned char>(text[end])) == 0) return true;
  }
  return false;
}

/// What ended a pass on a worker, for one that did not see it.
std::exception_ptr problemOf(const PassMessage& failed, const std::string& here) {
  if (failed.type != "pw::Error" && failed.type != "pw::UsageError")
    return std::make_exception_ptr(RemoteError(failed.type, failed.text, failed.worker));
  const bool isSaid = failed.worker == here || isNamedIn(failed.text, failed.worker);
  return std::make_exception_ptr(Error(isSaid ? failed.text : fmt::format("{} (on {})", failed.text, failed.worker)));
}

}  // namespace

PassRoot::PassRoot(const PassEnvironment& environment, std::shared_ptr<PassPart> own, BackwardMode mode, bool keepGraph, ContextId context)
    : environment_(environment), own_(std::move(own)), mode_(mode), keepGraph_(keepGraph), context_(context) {}

PassMessage PassRoot::message(PassStep step, bool all, Share share) const {
  PassMessage message;
  message.step = step;
  message.context = context_;
  message.pass = own_->id();
  message.keepGraph = keepGraph_;
  message.all = all;
  message.shares = {share};
  return message;
}

void PassRoot::start(Deadlines& deadlines, std::chrono::milliseconds deadline) {
  const auto now = Deadlines::Clock::now();
  const auto early = deadlines.add(now + deadline * 3 / 4, [weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->ask();
  });
  const auto late = deadlines.add(now + deadline, [weak = weak_from_this(), deadline] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    self->fail(std::make_exception_ptr(
        Error(fmt::format("The backward pass did not end within {}: {}", secondsText(deadline), self->diagnosis()))));
  });
  done_.whenDone([&deadlines, early, late](const RemoteFuture&) { deadlines.remove(early), deadlines.remove(late); });
  {
    const std::lock_guard lock(mutex_);
    phase_ = mode_ == BackwardMode::Smart ? Phase::Wave : Phase::Run;
  }
  const bool waves = mode_ == BackwardMode::Smart;
  sendAll({{environment_.self, message(waves ? PassStep::Reach : PassStep::Start, !waves, Share{})}});
}

void PassRoot::take(JobRank from, PassMessage message) {
  if (message.step == PassStep::Failed) return fail(problemOf(message, environment_.names[environment_.self.index()]));
  std::vector<Outgoing> messages;
  bool isUnexplained = false;
  {
    const std::lock_guard lock(mutex_);
    if (message.step == PassStep::Answer) {
      answers_[from] = std::move(message);
      return;
    }
    waits_[from] = message.waits;
    for (const Share share : message.shares) back_.add(share);
    if (!back_.isWhole() || done_.isDone()) return;
    (void)back_.takeAll();
    isUnexplained = phase_ == Phase::Explain;
    messages = next();
  }
  if (isUnexplained) return fail(std::make_exception_ptr(Error("The backward pass waits for gradients that no message brings.")));
  if (messages.empty()) {
    done_.set({});
  } else {
    sendAll(std::move(messages));
  }
}

std::vector<PassRoot::Outgoing> PassRoot::next() {
  std::vector<JobRank> waiting;
  for (const auto& [worker, waits] : waits_) {
    if (waits) waiting.push_back(worker);
  }
  switch (phase_) {
    case Phase::Wave: phase_ = Phase::Run; return {{environment_.self, message(PassStep::Start, false, Share{})}};
    case Phase::Run:
      if (waiting.empty()) return {};
      if (mode_ == BackwardMode::Smart) break;
      phase_ = Phase::LateWave;
      return {{environment_.self, message(PassStep::Reach, false, Share{})}};
    case Phase::LateWave:
      if (mode_ == BackwardMode::Auto) return sendTo(waiting, PassStep::Resume, Phase::Rest);
      break;
    case Phase::Rest:
      if (waiting.empty()) return {};
      break;
    case Phase::Explain: return {};
  }
  return sendTo(waiting, PassStep::Explain, Phase::Explain);
}

std::vector<PassRoot::Outgoing> PassRoot::sendTo(const std::vector<JobRank>& waiting, PassStep step, Phase then) {
  phase_ = then;
  std::vector<Outgoing> messages;
  Share rest;
  for (const JobRank worker : waiting) messages.push_back({worker, message(step, false, halveShare(rest))});
  back_.add(rest);
  return messages;
}

void PassRoot::sendAll(std::vector<Outgoing> messages) {
  for (Outgoing& out : messages) {
    own_->count(out.to, true);
    environment_.send(out.to, std::move(out.message));
  }
}

void PassRoot::fail(const std::exception_ptr& problem) { done_.fail(problem); }

void PassRoot::lost(JobRank worker, const std::string& why) {
  if (parts().contains(worker)) {
    fail(std::make_exception_ptr(Error(lostSentence(environment_.names[worker.index()], "the backward pass", why))));
  }
}

std::set<JobRank> PassRoot::parts() const {
  std::set<JobRank> workers;
  const std::lock_guard lock(mutex_);
  for (const auto& [worker, waits] : waits_) workers.insert(worker);
  return workers;
}

void PassRoot::ask() {
  for (std::size_t i = 0; i < environment_.names.size(); ++i) {
    PassMessage question = message(PassStep::Ask, false, {});
    question.shares.clear();
    environment_.send(JobRank(i), std::move(question));
  }
}

/// A message is lost where one worker counts more that it sent than the other counts received; the counts are taken a while before the
/// deadline, when whatever was sent should be there.
std::string PassRoot::lostMessage() const {
  for (const auto& [from, sender] : answers_) {
    for (const auto& [to, receiver] : answers_) {
      const auto out = sender.sent, in = receiver.received;
      const std::uint64_t sent = to.index() < out.size() ? out[to.index()] : 0, received = from.index() < in.size() ? in[from.index()] : 0;
      if (sent > received) {
        return fmt::format("{} did not get {} of the {} messages that {} sent it.", environment_.names[to.index()], sent - received, sent,
                           environment_.names[from.index()]);
      }
    }
  }
  return "";
}

std::string PassRoot::diagnosis() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> silent, busy;
  for (std::size_t i = 0; i < environment_.names.size(); ++i) {
    const auto found = answers_.find(JobRank(i));
    if (found == answers_.end()) silent.push_back(environment_.names[i]);
    if (found != answers_.end() && found->second.waits) busy.push_back(environment_.names[i]);
  }
  if (!silent.empty()) return fmt::format("{} did not answer; see whether it is stopped or overloaded.", fmt::join(silent, ", "));
  if (std::string lost = lostMessage(); !lost.empty()) return lost;
  if (!busy.empty()) return fmt::format("{} is still computing; give the pass a longer deadline.", fmt::join(busy, ", "));
  return "all workers answer, none is busy and no message was lost; the work was still on its way, so give the pass a longer deadline.";
}

}  // namespace pw
