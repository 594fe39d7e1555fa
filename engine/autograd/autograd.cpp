#include "engine/autograd/autograd.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "engine/autograd/optimizer.h"
#include "engine/remote/pending_calls.h"

namespace pw {
namespace {

constexpr int kStepThreads = 4;  // they compute and never wait
const char* const kClosed = "This worker has ended, and with it every backward pass that it started.";
const char* const kReleased = "The autograd context was released during a backward pass in it.";

const AutogradFunctions& functionsOf(const Remote& remote) {
  if (remote.settings().functions == nullptr) throw UsageError("Distributed autograd needs LibTorch; start the workers with it.");
  return *remote.settings().functions;
}

}  // namespace

struct DistributedAutograd::Impl {
  explicit Impl(Remote& of)
      : remote(of),
        functions(functionsOf(of)),
        contexts(of.settings().self, {[this](JobRank to, ContextId id) { send(to, contextMessage(PassStep::Joined, id)); },
                                      [this](JobRank to, ContextId id) { send(to, contextMessage(PassStep::Release, id)); },
                                      [this](JobRank worker) { return remote.isLost(worker); },
                                      [this](std::shared_ptr<void> content) { threads.post([kept = std::move(content)] {}, [] {}); }}),
        messageIds(of.settings().self),
        passIds(of.settings().self),
        environment{of.settings().self,
                    of.settings().names,
                    functions,
                    threads,
                    [this](JobRank to, PassMessage message) { send(to, std::move(message)); },
                    [this](JobRank worker) { return remote.isLost(worker); },
                    watch},
        threads(kStepThreads, kStepThreads) {}

  static PassMessage contextMessage(PassStep step, ContextId id) {
    PassMessage message;
    message.step = step;
    message.context = id;
    return message;
  }

  void send(JobRank to, PassMessage message);
  void handle(JobRank from, PassMessage message);
  void handleStep(JobRank from, PassMessage message);
  void refuse(const PassMessage& message, const std::string& text);
  void end(const PassMessage& message);
  void answer(const PassMessage& message);
  void lost(JobRank worker, const std::string& why);
  void close();
  void failPasses(ContextId id, const std::string& sentence);
  [[nodiscard]] std::shared_ptr<PassRoot> rootOf(PassId id) const;
  [[nodiscard]] std::shared_ptr<PassPart> partOf(const std::shared_ptr<AutogradContext>& context, const PassMessage& message);
  void finish(const PassRoot& root, bool isWell);
  [[nodiscard]] CallHooks hooks(const std::shared_ptr<Impl>& self);
  void addEnd(bool isSend, ContextId context, AutogradMessageId message, NodeHandle function, JobRank peer);

  Remote& remote;
  const AutogradFunctions& functions;
  Contexts contexts;
  IdSource<AutogradMessageId> messageIds;
  IdSource<PassId> passIds;
  AutogradWatch watch;
  PassEnvironment environment;
  mutable std::mutex mutex;
  std::mutex optimizerTurns;
  std::map<PassId, std::shared_ptr<PassRoot>> roots;
  bool closed = false;
  CallThreads threads;
};

void DistributedAutograd::Impl::send(JobRank to, PassMessage message) {
  if (to == environment.self) return handle(to, std::move(message));
  std::vector<HeldBuffer> parts;
  const std::string body = writeMessage(message, functions, parts);
  remote.sendAutograd(to, body, std::move(parts));
}

void DistributedAutograd::Impl::handle(JobRank from, PassMessage message) {
  for (const JobRank maker : {message.context.maker(), message.pass.maker()}) {
    if (maker.index() >= environment.names.size()) throw Error("a message of a backward pass names a worker that this job does not have");
  }
  switch (message.step) {
    case PassStep::Joined:
      if (message.context.maker() != environment.self) throw Error("a worker joins a context that was not made here");
      return contexts.joined(message.context, from);
    case PassStep::Release:
      if (message.context.maker() != from) throw Error("a context is ended by a worker that did not make it");
      failPasses(message.context, kReleased);
      return contexts.released(message.context);
    case PassStep::Start:
    case PassStep::Reach:
    case PassStep::Gradient:
    case PassStep::Resume:
    case PassStep::Explain: return handleStep(from, std::move(message));
    case PassStep::Idle:
    case PassStep::Failed:
    case PassStep::Answer:
      if (const auto root = rootOf(message.pass)) {
        if (message.step == PassStep::Idle) root->countIdle(from);
        root->take(from, std::move(message));
      }
      return;
    case PassStep::End: return end(message);
    case PassStep::Ask: return answer(message);
  }
}

std::shared_ptr<PassRoot> DistributedAutograd::Impl::rootOf(PassId id) const {
  const std::lock_guard lock(mutex);
  const auto found = roots.find(id);
  return found == roots.end() ? nullptr : found->second;
}

std::shared_ptr<PassPart> DistributedAutograd::Impl::partOf(const std::shared_ptr<AutogradContext>& context, const PassMessage& message) {
  const std::lock_guard lock(context->mutex);
  if (context->released || context->failed.contains(message.pass)) return nullptr;
  std::shared_ptr<PassPart>& part = context->passes[message.pass];
  if (part == nullptr)
    part = std::make_shared<PassPart>(environment, context, message.pass, message.keepGraph, std::vector<TensorHandle>());
  return part;
}

void DistributedAutograd::Impl::handleStep(JobRank from, PassMessage message) {
  if (message.shares.empty()) throw Error("a message of a backward pass has no share of it");
  const auto context = contexts.find(message.context);
  if (context == nullptr) {
    return refuse(message, fmt::format("The autograd context {} is not open on {}, where the backward pass came to.", message.context.value,
                                       environment.names[environment.self.index()]));
  }
  if (const auto part = partOf(context, message)) part->take(from, std::move(message));
}

void DistributedAutograd::Impl::refuse(const PassMessage& message, const std::string& text) {
  PassMessage failed = contextMessage(PassStep::Failed, message.context);
  failed.pass = message.pass;
  failed.type = "pw::Error", failed.text = text, failed.worker = environment.names[environment.self.index()];
  send(message.pass.maker(), std::move(failed));
}

void DistributedAutograd::Impl::end(const PassMessage& message) {
  const auto context = contexts.find(message.context);
  if (context == nullptr) return;
  std::shared_ptr<PassPart> part;
  {
    const std::lock_guard lock(context->mutex);
    if (auto found = context->passes.extract(message.pass); !found.empty()) part = std::move(found.mapped());
    if (message.waits) context->failed.insert(message.pass);  // it did not end well: messages may still be on their way
  }
  if (part != nullptr) part->stop();
}

void DistributedAutograd::Impl::answer(const PassMessage& message) {
  PassMessage answer = contextMessage(PassStep::Answer, message.context);
  answer.pass = message.pass;
  if (const auto context = contexts.find(message.context)) {
    const std::lock_guard lock(context->mutex);
    if (const auto found = context->passes.find(message.pass); found != context->passes.end()) answer = found->second->answer();
  }
  send(message.pass.maker(), std::move(answer));
}

void DistributedAutograd::Impl::lost(JobRank worker, const std::string& why) {
  std::vector<std::shared_ptr<PassRoot>> own;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [id, root] : roots) own.push_back(root);
  }
  const auto involves = [&](const AutogradContext& context) {
    const auto isPeer = [&](const auto& end) { return end.second.peer == worker; };
    return std::any_of(context.sends.begin(), context.sends.end(), isPeer) ||
           std::any_of(context.receives.begin(), context.receives.end(), isPeer);
  };
  const std::string sentence = lostSentence(remote.nameOf(worker), "the backward pass", why);
  for (const auto& context : contexts.all()) {
    std::vector<PassMessage> hurt;
    {
      const std::lock_guard lock(context->mutex);
      if (!involves(*context)) continue;
      for (const auto& [id, part] : context->passes) {
        hurt.push_back(contextMessage(PassStep::Ask, context->id));
        hurt.back().pass = id;
      }
    }
    for (const PassMessage& message : hurt) refuse(message, sentence);
  }
  for (const auto& root : own) {
    if (root->context().maker() == worker) root->fail(std::make_exception_ptr(Error(sentence)));
    root->lost(worker, why);
  }
  contexts.lost(worker);
}

void DistributedAutograd::Impl::close() {
  std::vector<std::shared_ptr<PassRoot>> own;
  {
    const std::lock_guard lock(mutex);
    closed = true;
    for (const auto& [id, root] : roots) own.push_back(root);
  }
  for (const auto& root : own) root->fail(std::make_exception_ptr(Error(kClosed)));
}

void DistributedAutograd::Impl::failPasses(ContextId id, const std::string& sentence) {
  std::vector<std::shared_ptr<PassRoot>> own;
  {
    const std::lock_guard lock(mutex);
    for (const auto& [pass, root] : roots) {
      if (root->context() == id) own.push_back(root);
    }
  }
  for (const auto& root : own) root->fail(std::make_exception_ptr(Error(sentence)));
}

void DistributedAutograd::Impl::addEnd(bool isSend, ContextId id, AutogradMessageId message, NodeHandle function, JobRank peer) {
  const auto context = contexts.find(id);
  if (context == nullptr) return;
  const std::lock_guard lock(context->mutex);
  if (!context->released) (isSend ? context->sends : context->receives)[message] = {std::move(function), peer};
}

CallHooks DistributedAutograd::Impl::hooks(const std::shared_ptr<Impl>& self) {
  CallHooks hooks;
  hooks.isOpen = [self](ContextId id) { return self->contexts.find(id) != nullptr; };
  hooks.sent = [self](ContextId id, JobRank to, const std::vector<TensorHandle>& tensors) {
    const AutogradMessageId message = self->messageIds.next();
    self->addEnd(true, id, message, self->functions.attachSend(tensors), to);
    if (self->watch.sent) self->watch.sent(id, message, to);
    return message;
  };
  hooks.received = [self](ContextId id, JobRank from, AutogradMessageId message, const std::vector<TensorHandle>& tensors) {
    self->addEnd(false, id, message, self->functions.attachReceive(tensors, message, self->remote.nameOf(from)), from);
    if (self->watch.received) self->watch.received(id, message, from, tensors);
  };
  hooks.called = [self](ContextId id, JobRank from) { self->contexts.called(id, from); };
  hooks.calling = [self](ContextId id, JobRank to) { self->contexts.calling(id, to); };
  hooks.late = [self](ContextId id, JobRank to) { self->contexts.late(id, to); };
  hooks.message = [self](JobRank from, std::string_view body, std::vector<HeldBuffer> parts) {
    self->handle(from, readMessage(body, std::move(parts), self->functions));
  };
  hooks.lost = [self](JobRank worker, const std::string& why) {
    self->lost(worker, why);
    if (self->watch.lost) self->watch.lost(worker, why);
  };
  hooks.closed = [self] { self->close(); };
  return hooks;
}

/// Everybody who may have a part hears of the end: after a failure that is anybody who has the context, and this worker does not know whom.
void DistributedAutograd::Impl::finish(const PassRoot& root, bool isWell) {
  {
    const std::lock_guard lock(mutex);
    roots.erase(root.id());
  }
  std::set<JobRank> workers = root.parts();
  if (!isWell) {
    for (std::size_t i = 0; i < environment.names.size(); ++i) workers.insert(JobRank(i));
  }
  workers.insert(environment.self);
  for (const JobRank worker : workers) {
    PassMessage message = contextMessage(PassStep::End, root.context());
    message.pass = root.id();
    message.waits = !isWell;
    send(worker, std::move(message));
  }
}

DistributedAutograd::DistributedAutograd(Remote& remote) : impl_(std::make_shared<Impl>(remote)) {
  remote.attach(impl_->hooks(impl_));
  defineOptimizers(*this);
}

DistributedAutograd::~DistributedAutograd() {
  impl_->threads.stop();
  for (const auto& context : impl_->contexts.all()) impl_->contexts.released(context->id);
}

void DistributedAutograd::watch(AutogradWatch watch) { impl_->watch = std::move(watch); }

ContextId DistributedAutograd::open() { return impl_->contexts.open(); }

void DistributedAutograd::release(ContextId context) {
  impl_->failPasses(context, kReleased);
  impl_->contexts.release(context);
}

void DistributedAutograd::backward(ContextId id, const std::vector<TensorHandle>& roots, const BackwardSettings& settings) {
  const auto context = impl_->contexts.require(id);
  if (roots.empty()) throw UsageError("A backward pass needs a root; give the loss.");
  const PassId pass = impl_->passIds.next();
  const auto part = std::make_shared<PassPart>(impl_->environment, context, pass, settings.keepGraph, roots);
  const auto root = std::make_shared<PassRoot>(impl_->environment, part, settings.mode, settings.keepGraph, id);
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->closed) throw Error(kClosed);
    impl_->roots[pass] = root;
  }
  {
    const std::lock_guard lock(context->mutex);
    context->passes[pass] = part;
  }
  try {
    root->start(impl_->remote.deadlines(), settings.deadline.value_or(impl_->remote.settings().deadline));
    for (std::size_t i = 0; i < impl_->environment.names.size(); ++i) {
      if (impl_->remote.isLost(JobRank(i))) impl_->lost(JobRank(i), "it was lost before");
    }
    (void)root->done().wait();
  } catch (...) {  // the pass is no longer known here, so late messages of it are dropped
    impl_->finish(*root, false);
    throw;
  }
  impl_->finish(*root, true);
}

std::vector<std::pair<TensorHandle, TensorHandle>> DistributedAutograd::gradients(ContextId id) const {
  const auto context = impl_->contexts.require(id);
  std::vector<std::pair<TensorHandle, TensorHandle>> all;
  const std::lock_guard lock(context->mutex);
  for (const auto& [identity, entry] : context->gradients) all.push_back(entry);
  return all;
}

TensorHandle DistributedAutograd::gradient(ContextId id, const TensorHandle& tensor) const {
  const auto context = impl_->contexts.require(id);
  const std::lock_guard lock(context->mutex);
  const auto found = context->gradients.find(impl_->functions.identityOf(tensor));
  return found == context->gradients.end() ? nullptr : found->second.second;
}

AutogradCounts DistributedAutograd::counts() const {
  AutogradCounts counts;
  for (const auto& context : impl_->contexts.all()) {
    const std::lock_guard lock(context->mutex);
    ++counts.contexts;
    counts.sends += context->sends.size(), counts.receives += context->receives.size();
    counts.gradients += context->gradients.size(), counts.parts += context->passes.size();
  }
  const std::lock_guard lock(impl_->mutex);
  counts.passes = impl_->roots.size();
  return counts;
}

std::mutex& DistributedAutograd::optimizerTurns() { return impl_->optimizerTurns; }

Remote& DistributedAutograd::remote() { return impl_->remote; }

OpenContext::~OpenContext() {
  try {
    autograd_.release(id_);
  } catch (const std::exception&) {
    return;  // it is not open any more, or those who have it cannot be told: they release it when this worker is gone
  }
}

}  // namespace pw
