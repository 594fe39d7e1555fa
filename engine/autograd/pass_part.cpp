#include "engine/autograd/pass_part.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "engine/remote/future.h"
#include "engine/remote/pending_calls.h"

namespace pw {

PassPart::PassPart(const PassEnvironment& environment, std::shared_ptr<AutogradContext> context, PassId id, bool keepGraph,
                   const std::vector<TensorHandle>& roots)
    : environment_(environment),
      context_(context),
      id_(id),
      keepGraph_(keepGraph),
      local_(environment.functions.makePass(roots, keepGraph)),
      sent_(environment.names.size()),
      received_(environment.names.size()) {}

void PassPart::take(JobRank from, PassMessage message) {
  count(from, false);
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    for (const Share share : message.shares) shares_.add(share);
    messages_.push_back(std::move(message));
    if (std::exchange(working_, true)) return;
  }
  environment_.threads.post([self = shared_from_this()] { self->work(); },
                            [self = shared_from_this()] { self->refuse(); });  // these tasks never wait, but need a thread
}

void PassPart::refuse() {
  fail(std::make_exception_ptr(Error(fmt::format("{} has no thread for its part of the backward pass; the system gives it no more.",
                                                 environment_.names[environment_.self.index()]))));
  const std::lock_guard lock(mutex_);
  working_ = false;
}

void PassPart::stop() {
  std::deque<PassMessage> dropped;
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  dropped.swap(messages_);
}

void PassPart::work() {
  std::unique_lock lock(mutex_);
  bool isIdle = false;
  while (true) {
    if (messages_.empty() && (isIdle || stopped_)) {
      working_ = false;
      return;
    }
    PassMessage next;
    const bool runs = !messages_.empty();
    if (runs) {
      next = std::move(messages_.front());
      messages_.pop_front();
    } else {
      next = message(PassStep::Idle);
      next.shares = shares_.takeAll();
    }
    lock.unlock();
    try {
      if (runs) {
        run(next);
      } else {  // the next one of this worker must not overtake it, so it goes while this thread is still the one that works
        next.waits = environment_.functions.waits(local_);
        count(id_.maker(), true);
        environment_.send(id_.maker(), std::move(next));
      }
    } catch (...) {
      fail(std::current_exception());  // ends the pass on its initiator
    }
    next = {};
    isIdle = !runs;
    lock.lock();
  }
}

void PassPart::run(PassMessage& message) {
  switch (message.step) {
    case PassStep::Reach: return reach(message);
    case PassStep::Start:
    case PassStep::Resume: expect(message.all); return runPiece({}, nullptr, {});
    case PassStep::Gradient: {
      expect(message.all);
      const AutogradMessageId id = message.messages.at(0);
      if (!fired_.insert(id).second) throw Error(fmt::format("The gradient of message {} came twice.", id.value));
      return runPiece(id, sendFunction(id), message.gradients);
    }
    case PassStep::Explain: return explain();
    case PassStep::Joined:
    case PassStep::Release:
    case PassStep::Idle:
    case PassStep::Failed:
    case PassStep::End:
    case PassStep::Ask:
    case PassStep::Answer: break;
  }
  throw Error("a message of a backward pass is for somebody else");
}

void PassPart::runPiece(AutogradMessageId message, const NodeHandle& send, const std::vector<TensorHandle>& gradients) {
  const GradientSink out = sink();
  const auto piece = [&] { environment_.functions.run(local_, send, gradients, out); };
  environment_.watch.piece ? environment_.watch.piece(contextId(), message, piece) : piece();
}

ContextId PassPart::contextId() const {
  const auto context = context_.lock();
  return context == nullptr ? ContextId() : context->id;
}

NodeHandle PassPart::sendFunction(AutogradMessageId message) const {
  const auto context = context_.lock();
  if (context != nullptr) {
    const std::lock_guard lock(context->mutex);
    const auto found = context->sends.find(message);
    if (found != context->sends.end()) return found->second.function;
  }
  throw Error(fmt::format("A gradient came for message {}, which {} did not send in this context.", message.value,
                          environment_.names[environment_.self.index()]));
}

void PassPart::reach(const PassMessage& message) {
  std::vector<NodeHandle> sends;
  for (const AutogradMessageId id : message.messages) {
    if (used_.insert(id).second) sends.push_back(sendFunction(id));
  }
  std::map<JobRank, std::vector<AutogradMessageId>> reached;
  const auto found = environment_.functions.reach(local_, sends, message.messages.empty());
  if (const auto context = context_.lock()) {
    const std::lock_guard lock(context->mutex);
    for (const AutogradMessageId id : found) {
      if (const auto end = context->receives.find(id); end != context->receives.end()) reached[end->second.peer].push_back(id);
    }
  }
  for (auto& [worker, ids] : reached) {
    PassMessage next = this->message(PassStep::Reach);
    next.messages = std::move(ids);
    sendOn(worker, std::move(next));
  }
}

void PassPart::expect(bool all) {
  if (expected_ && (all_ == all || all)) return;
  std::vector<NodeHandle> sends;
  if (const auto context = context_.lock()) {
    const std::lock_guard lock(context->mutex);
    for (const auto& [id, end] : context->sends) {
      if (all || used_.contains(id)) sends.push_back(end.function);
    }
  }
  environment_.functions.expect(local_, sends);
  expected_ = true, all_ = all;
}

GradientSink PassPart::sink() {
  const auto received = [this](AutogradMessageId id, std::vector<TensorHandle> gradients) {
    JobRank peer;
    {
      const auto context = context_.lock();
      if (context == nullptr) return;
      const std::lock_guard lock(context->mutex);
      const auto found = context->receives.find(id);
      if (found == context->receives.end()) {
        if (context->released) return;
        throw Error(fmt::format("The backward pass reached tensors of message {}, which came in another autograd context.", id.value));
      }
      peer = found->second.peer;
    }
    if (environment_.watch.gradient) environment_.watch.gradient(contextId(), id, peer, gradients);
    PassMessage next = message(PassStep::Gradient);
    next.all = all_;
    next.messages = {id};
    next.gradients = std::move(gradients);
    sendOn(peer, std::move(next));
  };
  const auto leaf = [this](const TensorHandle& variable, const TensorHandle& gradient) {
    const auto context = context_.lock();
    if (context == nullptr) return;
    const std::lock_guard lock(context->mutex);
    if (context->released) return;
    auto [entry, isFirst] = context->gradients.try_emplace(environment_.functions.identityOf(variable), variable, gradient);
    if (!isFirst) entry->second.second = environment_.functions.sumOf(entry->second.second, gradient);
  };
  return {received, leaf};
}

void PassPart::sendOn(JobRank to, PassMessage message) {
  if (environment_.isLost(to)) throw Error(lostSentence(environment_.names[to.index()], "the backward pass", "it was lost before"));
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    message.shares = {shares_.take()};
  }
  count(to, true);
  environment_.send(to, std::move(message));
}

PassMessage PassPart::message(PassStep step) const {
  PassMessage message;
  message.step = step;
  message.pass = id_;
  message.keepGraph = keepGraph_;
  message.context = contextId();
  return message;
}

void PassPart::explain() {
  const auto context = context_.lock();
  if (context == nullptr) return;
  const std::lock_guard lock(context->mutex);
  for (const auto& [id, end] : context->sends) {  // what is used only waits for somebody else's that is not
    if (fired_.contains(id) || used_.contains(id) || !environment_.functions.waitsFor(local_, end.function)) continue;
    throw UsageError(
        fmt::format("{} waits for the gradient of message {}, which it sent to {} and whose value the loss does not use; run the pass in "
                    "SMART mode, or AUTO, which finds out what is used.",
                    environment_.names[environment_.self.index()], id.value, environment_.names[end.peer.index()]));
  }
}

void PassPart::fail(const std::exception_ptr& problem) {
  PassMessage failed = message(PassStep::Failed);
  const RemoteProblem described = RemoteProblem::of(problem, environment_.names[environment_.self.index()]);
  failed.type = described.type, failed.text = described.text, failed.worker = described.worker;
  stop();
  environment_.send(id_.maker(), std::move(failed));
}

void PassPart::count(JobRank peer, bool isSent) {
  const std::lock_guard lock(mutex_);
  ++(isSent ? sent_ : received_).at(peer.index());
}

PassMessage PassPart::answer() const {
  PassMessage answer = message(PassStep::Answer);
  const std::lock_guard lock(mutex_);
  answer.waits = working_;
  answer.sent = sent_, answer.received = received_;
  return answer;
}

}  // namespace pw
