#include "engine/remote/remote.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "engine/remote/agent.h"

namespace pw {

Remote::Remote(RemoteSettings settings, Send send) {
  if (settings.names.empty() || settings.self.value < 0 || settings.self.index() >= settings.names.size() || settings.names.size() > 65535)
    throw UsageError("A job of remote calls has 1 to 65535 workers, and this one is one of them.");
  for (const std::string& name : settings.names) {
    if (std::count(settings.names.begin(), settings.names.end(), name) > 1) throw UsageError("Two workers are called " + name + ".");
  }
  impl_ = std::make_shared<Impl>(*this, std::move(settings), std::move(send));
}

Remote::~Remote() { close(); }

void Remote::close() {
  if (impl_->hooks.closed) impl_->hooks.closed();
  impl_->pending.close();
  impl_->shutdown.close();
  impl_->threads.stop();
  impl_->references->clear();
  impl_->deadlines.stop();
}

void Remote::define(const std::string& name, Function function) {
  const std::lock_guard lock(impl_->mutex);
  impl_->functions[name] = std::move(function);
}

RemoteFuture Remote::rpcAsync(const std::string& worker, const std::string& function, const RemoteValue& arguments, Deadline deadline) {
  return impl_->call(CallType::Return, rankOf(worker), function, arguments, {}, deadline);
}

RemoteValue Remote::rpcSync(const std::string& worker, const std::string& function, const RemoteValue& arguments, Deadline deadline) {
  return rpcAsync(worker, function, arguments, deadline).wait();
}

Reference Remote::remote(const std::string& worker, const std::string& function, const RemoteValue& arguments, Deadline deadline) {
  const JobRank owner = rankOf(worker);
  const Reference reference = impl_->references->make(owner);
  (void)impl_->call(CallType::Keep, owner, function, arguments, reference, deadline);
  return reference;
}

Reference Remote::share(RemoteValue value) {
  const Reference reference = impl_->references->make(impl_->settings.self);
  const RemoteFuture settled;
  settled.set(std::move(value));
  impl_->references->settle(reference.id(), settled);
  return reference;
}

RemoteFuture Remote::toHereAsync(const Reference& reference, Deadline deadline) {
  if (reference.owner() != impl_->settings.self) return impl_->call(CallType::Fetch, reference.owner(), "", {}, reference, deadline);
  const RemoteFuture future;
  const RemoteFuture value = impl_->references->value(reference.id());
  const std::shared_ptr<Impl> impl = impl_;
  const CallId id = impl->pending.add({future, impl->settings.self, "the wait for a reference's value", {}, reference},
                                      impl->deadlineOf(CallType::Fetch, deadline));
  value.whenDone([weak = std::weak_ptr(impl), id](const RemoteFuture& done) {
    const auto here = weak.lock();
    const auto waiting = here == nullptr ? std::nullopt : here->pending.take(id);
    if (!waiting) return;
    try {
      waiting->future.set(done.wait());
    } catch (...) {
      waiting->future.fail(std::current_exception());  // for whoever waits
    }
  });
  return future;
}

RemoteValue Remote::toHere(const Reference& reference, Deadline deadline) { return toHereAsync(reference, deadline).wait(); }

RemoteValue Remote::localValue(const Reference& reference, Deadline deadline) {
  if (reference.owner() != impl_->settings.self) {
    throw UsageError(
        fmt::format("The value of this reference is on {}; fetch it with toHere, or call a function there.", nameOf(reference.owner())));
  }
  return toHere(reference, deadline);
}

void Remote::shutdown(Deadline deadline) {
  impl_->shutdown.wait(deadline.value_or(impl_->settings.deadline));
  impl_->references->clear();
}

void Remote::deliver(JobRank from, ChannelMessage message) {
  try {
    const std::optional<Post::Letter> letter = impl_->post.open(from, message);
    if (!letter || impl_->post.isLost(from)) return;
    switch (letter->kind) {
      case MessageKind::Call: return impl_->handleCall(from, letter->body, std::move(message.parts));
      case MessageKind::Result: return impl_->handleResult(from, letter->body, std::move(message.parts));
      case MessageKind::GiveBack: return impl_->handleGiveBack(letter->body);
      case MessageKind::Shutdown: return impl_->shutdown.handle(from, letter->body);
      case MessageKind::Autograd:
        if (impl_->hooks.message) impl_->hooks.message(from, letter->body, std::move(message.parts));
        return;
      case MessageKind::Lost: return impl_->handleLost(letter->body);
    }
  } catch (const std::exception& problem) {  // what a peer sends must not end this worker
    lost(from, fmt::format("what it sent cannot be read ({})", problem.what()));
  }
}

void Remote::lost(JobRank worker, const std::string& why) {
  impl_->lose(worker, why, !impl_->shutdown.hasEnded());  // after the end it is no loss
}

JobRank Remote::rankOf(const std::string& worker) const {
  const auto& names = impl_->settings.names;
  const auto found = std::find(names.begin(), names.end(), worker);
  if (found == names.end()) throw UsageError(fmt::format("There is no worker {}; this job has {}.", worker, fmt::join(names, ", ")));
  return JobRank(static_cast<std::size_t>(found - names.begin()));
}

const std::string& Remote::nameOf(JobRank worker) const { return impl_->settings.names.at(worker.index()); }
const RemoteSettings& Remote::settings() const { return impl_->settings; }

RemoteCounts Remote::counts() const {
  return {impl_->pending.size(), impl_->executing, impl_->references->owned(), impl_->references->held(), impl_->deadlines.size()};
}

void Remote::attach(CallHooks hooks) { impl_->hooks = std::move(hooks); }
void Remote::sendAutograd(JobRank to, std::string_view body, std::vector<HeldBuffer> parts) {
  impl_->post.send(to, MessageKind::Autograd, body, std::move(parts));
}
Deadlines& Remote::deadlines() { return impl_->deadlines; }
bool Remote::isLost(JobRank worker) const { return impl_->post.isLost(worker); }

}  // namespace pw
