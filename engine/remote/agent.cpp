#include "engine/remote/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/remote/current_context.h"

namespace pw {
namespace {

enum class Status : std::uint8_t { Value, Problem };

/// A worker that calls itself gets copies, as it would from another one.
void copyParts(std::vector<HeldBuffer>& parts) {
  for (HeldBuffer& part : parts) {
    std::shared_ptr<std::byte[]> copy(new std::byte[part.buffer.bytes]);
    if (part.buffer.bytes > 0) std::memcpy(copy.get(), part.buffer.data, part.buffer.bytes);
    part = {{copy.get(), part.buffer.bytes}, copy};
  }
}

std::string describe(CallType type, const std::string& function) {
  return type == CallType::Fetch ? "the fetch of a reference's value" : "the call of " + function;
}

}  // namespace

Remote::Impl::Impl(Remote& remote, RemoteSettings given, Send send)
    : face(remote),
      settings(std::move(given)),
      post(settings.self, settings.names.size(), settings.token, std::move(send)),
      pending(settings.self, settings.names, deadlines, [this] { shutdown.becameIdle(); }),
      counted{std::vector<std::uint64_t>(settings.names.size()), std::vector<std::uint64_t>(settings.names.size())},
      shutdown({settings.self, settings.names, [this](JobRank to, std::string_view body) { post.send(to, MessageKind::Shutdown, body); },
                [this] { return pending.size() == 0 && executing == 0; }, [this] { return callCounts(); }}),
      threads(settings.runningCalls, settings.mostThreads) {
  const auto giveBack = [this](JobRank owner, ReferenceId id, Share share) {
    Packer body;
    body.add(id.value);
    body.add(share.exponent);
    post.send(owner, MessageKind::GiveBack, body.finish());
  };
  references = std::make_shared<References>(settings.self, settings.names.size(), giveBack, [this](std::shared_ptr<void> value) {
    threads.post([kept = std::move(value)] {}, [] {});  // goes with the task
  });
}

CallCounts Remote::Impl::callCounts() {
  const std::lock_guard lock(mutex);
  return counted;
}

RemoteFuture Remote::Impl::call(CallType type, JobRank to, const std::string& function, const RemoteValue& arguments,
                                const Reference& reference, Deadline deadline) {
  const ContextId context = isOpen(currentContext()) ? currentContext() : ContextId();
  SentValue sent;
  writeValue(sent, arguments, settings.functions, *references, static_cast<bool>(context));
  if (context) hooks.calling(context, to);
  const AutogradMessageId message = sent.needGradient.empty() ? AutogradMessageId() : hooks.sent(context, to, sent.needGradient);

  const RemoteFuture future;
  const std::chrono::milliseconds longest = deadlineOf(type, deadline);
  const CallId id = pending.add({future, to, describe(type, function), context, reference}, longest);
  if (future.isDone()) return future;
  Packer body;
  body.add(id.value);
  body.add(static_cast<std::uint8_t>(type));
  body.add(context.value);
  body.add(message.value);
  body.add(reference.id().value);
  body.add(static_cast<std::int64_t>(longest.count()));
  body.add(function);
  body.addRaw(sent.head.finish());
  {
    const std::lock_guard lock(mutex);
    ++counted.sent[to.index()];
  }
  try {
    if (post.send(to, MessageKind::Call, body.finish(), std::move(sent.parts))) sent.shares.commit();
  } catch (...) {  // as if it had not been made
    (void)pending.take(id);
    const std::lock_guard lock(mutex);
    --counted.sent[to.index()];
    throw;
  }
  if (context && !isOpen(context)) hooks.late(context, to);
  return future;
}

void Remote::Impl::handleCall(JobRank from, std::string_view body, std::vector<HeldBuffer> parts) {
  {
    const std::lock_guard lock(mutex);
    ++counted.received[from.index()];
  }
  if (from == settings.self) copyParts(parts);
  Unpacker in(body);
  auto call = std::make_shared<IncomingCall>();
  call->from = from;
  call->id.value = in.next<std::uint64_t>();
  call->type = static_cast<CallType>(in.within<std::uint8_t>(0, static_cast<std::uint8_t>(CallType::Fetch)));
  call->context.value = in.next<std::uint64_t>();
  const AutogradMessageId message(in.next<std::uint64_t>());
  call->reference.value = in.next<std::uint64_t>();
  constexpr std::int64_t kLongest = std::chrono::milliseconds(std::chrono::hours(24 * 365 * 100)).count();
  call->until = Deadlines::Clock::now() + std::chrono::milliseconds(std::clamp<std::int64_t>(in.next<std::int64_t>(), 0, kLongest));
  call->function = in.next<std::string>();
  if (call->context.maker().index() >= settings.names.size()) throw Error("a call is of a context of a worker that this job does not have");
  std::vector<TensorHandle> needGradient;
  std::size_t next = 0;
  try {
    call->arguments = readValue(in, parts, next, needGradient, settings.functions, *references);
  } catch (const std::exception&) {
    if (!in.isSound()) throw;
    ++executing;
    return refuse(*call, std::current_exception());  // this worker cannot take it: no reason to leave the other one
  }
  if (!in.isComplete() || next != parts.size()) throw Error("a call is damaged");
  if (call->context && hooks.called) hooks.called(call->context, from);
  if (message && isOpen(call->context)) hooks.received(call->context, from, message, needGradient);

  ++executing;
  if (call->type == CallType::Fetch) {
    references->value(call->reference).whenDone([this, call](const RemoteFuture& value) { answer(*call, value); });
    return;
  }
  threads.post(
      [this, call] { execute(*call); },
      [this, call] {
        refuse(*call,
               std::make_exception_ptr(Error(fmt::format(
                   "all {} threads for calls wait for other calls; nest them less deeply, or allow more threads", settings.mostThreads))));
      });
}

void Remote::Impl::refuse(const IncomingCall& call, const std::exception_ptr& problem) {
  const RemoteFuture refused;
  refused.fail(problem);
  answer(call, refused);
}

Remote::Function Remote::Impl::find(const std::string& name) const {
  const std::lock_guard lock(mutex);
  const auto found = functions.find(name);
  if (found == functions.end()) {
    throw UsageError(
        fmt::format("{} knows no function {}; define it there before others call it.", settings.names[settings.self.index()], name));
  }
  return found->second;
}

void Remote::Impl::execute(const IncomingCall& call) {
  const RemoteFuture result;
  try {
    const WithContext within(call.context);
    const WithCallDeadline bounded(call.type == CallType::Return ? std::optional(call.until)
                                                                 : std::nullopt);  // no caller waits for a kept value
    result.set(find(call.function)(face, call.arguments));
  } catch (...) {
    result.fail(std::current_exception());  // whatever it is, the caller gets it
  }
  answer(call, result);
}

void Remote::Impl::answer(const IncomingCall& call, const RemoteFuture& result) {
  try {
    const WithContext within(call.context);
    if (call.type == CallType::Keep) references->settle(call.reference, result);
    const RemoteValue value = result.wait();
    answerValue(call, call.type == CallType::Keep ? RemoteValue() : value);
  } catch (...) {
    answerProblem(call, std::current_exception());  // of the function, or of a result that cannot be sent
  }
  --executing;
  shutdown.becameIdle();
}

void Remote::Impl::answerValue(const IncomingCall& call, const RemoteValue& value) {
  const bool inContext = isOpen(call.context);
  SentValue sent;
  writeValue(sent, value, settings.functions, *references, inContext);
  const AutogradMessageId message =
      sent.needGradient.empty() ? AutogradMessageId() : hooks.sent(call.context, call.from, sent.needGradient);
  Packer body;
  body.add(call.id.value);
  body.add(static_cast<std::uint8_t>(Status::Value));
  body.add(message.value);
  body.addRaw(sent.head.finish());
  if (post.send(call.from, MessageKind::Result, body.finish(), std::move(sent.parts))) sent.shares.commit();
}

void Remote::Impl::answerProblem(const IncomingCall& call, const std::exception_ptr& thrown) {
  const RemoteProblem problem = RemoteProblem::of(thrown, settings.names[settings.self.index()]);
  Packer body;
  body.add(call.id.value);
  body.add(static_cast<std::uint8_t>(Status::Problem));
  for (const std::string* text : {&problem.type, &problem.text, &problem.worker}) body.add(*text);
  post.send(call.from, MessageKind::Result, body.finish());
}

void Remote::Impl::handleResult(JobRank from, std::string_view body, std::vector<HeldBuffer> parts) {
  if (from == settings.self) copyParts(parts);
  Unpacker in(body);
  const CallId id(in.next<std::uint64_t>());
  const auto status = static_cast<Status>(in.within<std::uint8_t>(0, static_cast<std::uint8_t>(Status::Problem)));
  if (!in.isSound()) throw Error("a result is damaged");
  std::optional<PendingCall> call = pending.take(id);
  try {
    readResult(from, status == Status::Value, in, parts, call);
  } catch (...) {
    if (call) call->future.fail(std::current_exception());  // nobody else ends it any more
    throw;
  }
  call.reset();
  shutdown.becameIdle();
}

void Remote::Impl::readResult(JobRank from, bool isValue, Unpacker& in, std::vector<HeldBuffer>& parts,
                              const std::optional<PendingCall>& call) {
  if (call && call->to != from) throw Error("a result is for a call to another worker");
  if (!isValue) {
    RemoteProblem problem;
    for (std::string* text : {&problem.type, &problem.text, &problem.worker}) in.take(*text);
    if (!in.isComplete()) throw Error("a result is damaged");
    if (call) call->future.fail(std::make_exception_ptr(problem.error()));
    return;
  }
  const AutogradMessageId message(in.next<std::uint64_t>());
  std::vector<TensorHandle> needGradient;
  std::size_t next = 0;
  RemoteValue value =
      readValue(in, parts, next, needGradient, settings.functions, *references);  // even when it is late: for its references
  if (!in.isComplete() || next != parts.size()) throw Error("a result is damaged");
  if (call && message && isOpen(call->context)) hooks.received(call->context, from, message, needGradient);
  if (call) call->future.set(std::move(value));
}

void Remote::Impl::handleGiveBack(std::string_view body) {
  Unpacker in(body);
  const ReferenceId id(in.next<std::uint64_t>());
  const Share share{in.within<int>(0, 1 << 30)};
  if (!in.isComplete()) throw Error("a message of a reference is damaged");
  references->takeBack(id, share);
}

std::string Remote::Impl::withFirstLoss(JobRank worker, const std::string& why) {
  const std::lock_guard lock(mutex);
  if (firstLoss.empty()) {
    firstLost = worker;
    firstLoss = fmt::format("{} was lost before ({})", settings.names[worker.index()], why);
  }
  return worker == firstLost ? why : fmt::format("{}; {}", why, firstLoss);
}

void Remote::Impl::lose(JobRank worker, const std::string& why, bool tells) {
  if (!post.lose(worker)) return;
  if (tells) tellLost(worker, why);
  const std::string whole = withFirstLoss(worker, why);
  pending.lose(worker, whole);
  shutdown.lost(worker, whole);
  if (hooks.lost) hooks.lost(worker, whole);
  shutdown.becameIdle();
}

void Remote::Impl::tellLost(JobRank worker, const std::string& why) {
  Packer body;
  body.add(static_cast<std::int32_t>(worker.value));
  body.add(why);
  const std::string text = body.finish();
  for (std::size_t i = 0; i < settings.names.size(); ++i) {
    if (JobRank(i) != settings.self && JobRank(i) != worker) post.send(JobRank(i), MessageKind::Lost, text);
  }
}

void Remote::Impl::handleLost(std::string_view body) {
  Unpacker in(body);
  const JobRank worker(in.within<std::int32_t>(0, static_cast<std::int32_t>(settings.names.size()) - 1));
  const auto why = in.next<std::string>();
  if (!in.isComplete()) throw Error("a message of a worker's end is damaged");
  if (worker != settings.self) lose(worker, why, false);
}

std::chrono::milliseconds Remote::Impl::deadlineOf(CallType type, Deadline given) const {
  using std::chrono::milliseconds;
  const auto until = currentCallDeadline();
  if (given || !until || type == CallType::Keep) return given.value_or(settings.deadline);
  const auto left = std::chrono::duration_cast<milliseconds>(*until - Deadlines::Clock::now());
  if (left <= milliseconds(0)) return settings.deadline;  // nobody waits for the function any more, but it keeps running
  const milliseconds slack = std::min(left / 8, settings.deadline / std::max(1, settings.mostThreads));
  return std::min(left - slack, settings.deadline);
}

}  // namespace pw
