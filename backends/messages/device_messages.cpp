#include "backends/messages/device_messages.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/messages/device_inbox.h"
#include "backends/messages/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

/// A wait for an operation passed its deadline.
std::string lateSentence(const DeviceMessage& message, std::chrono::milliseconds deadline) {
  if (message.way != Way::Collective) return lateSentence(message.sending, message.peer, deadline);
  std::string ranks = std::to_string(message.group.front().value);
  for (std::size_t i = 1; i < message.group.size(); ++i) {
    ranks += (i + 1 < message.group.size() ? ", " : " and ") + std::to_string(message.group[i].value);
  }
  return "ranks " + ranks + " did not all start a collective of " + std::to_string(message.buffer.bytes) + " bytes within " +
         inWords(deadline) + "; check whether one of them hangs, or raise --timeout";
}

class DeviceMessages final : public Communicator {
 public:
  DeviceMessages(std::unique_ptr<Communicator> host, const Device& device, DeviceLinks links, std::chrono::milliseconds deadline)
      : device_(device), deadline_(deadline), inbox_(*host, device_, links_), host_(std::move(host)), links_(std::move(links)) {}
  ~DeviceMessages() override;
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  [[nodiscard]] JobRank rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  Request send(JobRank to, std::uint32_t tag, Buffer buffer) override;
  Request receive(JobRank from, std::uint32_t tag, Buffer buffer) override;
  void wait(Request request) override;
  std::optional<bool> isDone(Request request) override;
  std::size_t waitAny(std::span<const Request> requests) override;
  void progress() override;
  void requireAlive() override;
  std::optional<std::pair<Ns, Ns>> timesOf(Request request) override;
  MessageState stateOf(Request request) noexcept override;
  std::optional<Request> startCollective(Collective what, std::span<const JobRank> group, DType dtype, Buffer buffer) override;
  void barrier() override;
  void abort() noexcept override;

 private:
  [[nodiscard]] bool isOnDevice(Buffer buffer) const { return buffer.bytes > 0 && links_.holds(buffer.data); }
  void hangBell(std::optional<Request> announcement);
  void advance();
  [[nodiscard]] bool isQuiet() const;
  [[nodiscard]] bool isMoved(const DeviceMessage& message) const;
  [[nodiscard]] bool isBegun(std::uint64_t operation) const;
  [[nodiscard]] MessageState currentState(const DeviceMessage& message) const noexcept;
  [[nodiscard]] bool isSettled(const DeviceMessage& message) const;
  void finishReceive(Request request, DeviceMessage& message);
  template <class Condition>
  bool runUntil(Condition condition);

  const Device& device_;
  std::chrono::milliseconds deadline_;
  std::unordered_map<Request, DeviceMessage> messages_;
  Request next_ = 1;
  std::deque<std::uint64_t> inFlight_;                    ///< operations not known to be done
  std::unordered_map<Request, std::uint64_t> waited_;     ///< operations of messages since the last barrier
  std::unordered_map<Request, std::pair<Ns, Ns>> times_;  ///< of those between the last two barriers
  std::vector<HeldBuffer> copied_;                        ///< what the device may still copy from
  std::optional<Request> bell_;  ///< a message from this rank to itself that never arrives: its receive ends when the job fails
  std::byte bellByte_{};
  std::string failure_;  ///< of the job
  bool left_ = false;
  DeviceInbox inbox_;
  // Last members: they may write to the memory above until they are destroyed, and the links use the host's transport.
  std::unique_ptr<Communicator> host_;
  DeviceLinks links_;
};

/// Nothing is written to memory after this returns. Operations that are open on the host's transport are ended, except messages: the
/// transport rightly treats those as a failure.
DeviceMessages::~DeviceMessages() {
  if (left_ || !bell_) return;
  try {
    advance();
    if (!inFlight_.empty()) links_.abort();
    if (!failure_.empty()) return;
    host_->wait(host_->send(rank(), DeviceInbox::kBellTag, {&bellByte_, 1}));
    host_->wait(*bell_);
  } catch (const std::exception&) {  // the job fails: nobody is left to tell
  }
}

/// Called at the first device message or collective: from then on a failure of the job is noticed even while this rank waits for its device
/// only.
void DeviceMessages::hangBell(std::optional<Request> announcement) {
  if (bell_) return;
  const auto requireTelling = [this](Request request) {
    if (!host_->isDone(request)) throw UsageError("the transport gloo cannot announce messages of GPUs; use the transport ucx");
  };
  if (announcement) requireTelling(*announcement);
  const Request bell = host_->receive(rank(), DeviceInbox::kBellTag, {&bellByte_, 1});
  requireTelling(bell);
  bell_ = bell;
}

Communicator::Request DeviceMessages::send(JobRank to, std::uint32_t tag, Buffer buffer) {
  assert(to.value >= 0 && to.value < size());
  advance();
  const bool onDevice = isOnDevice(buffer);
  if (onDevice && left_) throw Error(leftSentence());
  DeviceMessage message{.way = onDevice ? Way::Send : Way::Host, .sending = true, .peer = to, .tag = tag, .buffer = buffer};
  if (!onDevice) message.host = host_->send(to, tag, buffer);
  const Request request = next_++;
  DeviceMessage& added = messages_.emplace(request, std::move(message)).first->second;
  if (onDevice) {
    added.host = inbox_.announce(added);
    hangBell(added.host);
    added.operation = links_.send(to, buffer);
    inFlight_.push_back(*added.operation);
  }
  return request;
}

Communicator::Request DeviceMessages::receive(JobRank from, std::uint32_t tag, Buffer buffer) {
  assert(from.value >= 0 && from.value < size());
  advance();
  const bool onDevice = isOnDevice(buffer);
  if (onDevice && left_) throw Error(leftSentence());
  DeviceMessage message{.way = onDevice ? Way::Receive : Way::Host, .sending = false, .peer = from, .tag = tag, .buffer = buffer};
  if (!onDevice) message.host = host_->receive(from, tag, buffer);
  const Request request = next_++;
  DeviceMessage& added = messages_.emplace(request, std::move(message)).first->second;
  if (onDevice) {
    const auto expected = inbox_.want(added);
    if (expected) hangBell(expected);
    advance();
  }
  return request;
}

/// Progresses all device messages; a failure is kept for the next wait.
void DeviceMessages::advance() {
  if (!bell_ || left_ || !failure_.empty()) return;
  try {
    if (host_->isDone(*bell_).value_or(false)) host_->wait(*bell_);
    inbox_.listen(inFlight_);
    while (!inFlight_.empty() && links_.isDone(inFlight_.front())) inFlight_.pop_front();
  } catch (const Error& error) {
    failure_ = error.what();
  }
}

/// Whether no device message is in flight, so that waits may be left to the host's transport.
bool DeviceMessages::isQuiet() const { return !bell_ || left_ || !failure_.empty() || (inFlight_.empty() && !inbox_.isExpecting()); }

/// Whether waiting for a message would succeed at once.
bool DeviceMessages::isMoved(const DeviceMessage& message) const {
  switch (message.way) {
    case Way::Host: return host_->isDone(message.host).value_or(false);
    case Way::Send: return links_.isDone(*message.operation) && host_->isDone(message.host).value_or(false);
    case Way::Receive: return message.operation.has_value();
    case Way::Collective: return isBegun(*message.operation);
  }
  return false;
}

/// Whether compute can be ordered after an operation without waiting for other ranks.
bool DeviceMessages::isBegun(std::uint64_t operation) const {
  if (links_.isDone(operation)) return true;
  const MessageState state = links_.stateOf ? links_.stateOf(operation) : MessageState::Unknown;
  return state == MessageState::Moving || state == MessageState::Done;
}

bool DeviceMessages::isSettled(const DeviceMessage& message) const {
  return left_ || (message.way != Way::Host && !failure_.empty()) || isMoved(message);
}

/// Progresses the transports until the condition holds; false when the time is over first.
template <class Condition>
bool DeviceMessages::runUntil(Condition condition) {
  for (const auto end = Clock::now() + deadline_;;) {
    advance();
    if (condition()) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::yield();
  }
}

void DeviceMessages::wait(Request request) {
  const auto found = messages_.find(request);
  assert(found != messages_.end());
  DeviceMessage& message = found->second;
  const bool onHost = message.way == Way::Host;
  if (!onHost && left_) throw Error(leftSentence());
  const bool inTime = runUntil([&] { return (onHost && isQuiet()) || isSettled(message); });
  if (!inTime || (!onHost && !failure_.empty() && (!message.operation || !links_.isDone(*message.operation)))) {
    const std::string sentence = inTime ? failure_ : lateSentence(message, deadline_);
    inbox_.cancel(message);
    throw Error(sentence);
  }
  switch (message.way) {
    case Way::Host:
    case Way::Send: host_->wait(message.host); break;
    case Way::Receive: finishReceive(request, message); break;
    case Way::Collective: links_.order(*message.operation); break;
  }
  if (!onHost) waited_.emplace(request, *message.operation);
  messages_.erase(request);
}

/// Orders compute from now on after a message that was announced.
void DeviceMessages::finishReceive(Request request, DeviceMessage& message) {
  if (!message.failure.empty()) {
    const std::string sentence = message.failure;
    copied_.push_back(std::move(message.kept));  // it may still be written to
    messages_.erase(request);
    throw Error(sentence);
  }
  links_.order(*message.operation);
  if (message.kept.buffer.bytes == 0) return;
  device_.copy(message.buffer, message.kept.buffer);
  copied_.push_back(std::move(message.kept));
}

std::optional<bool> DeviceMessages::isDone(Request request) {
  advance();
  const DeviceMessage& message = messages_.at(request);
  if (message.way == Way::Host) return host_->isDone(message.host);
  return isSettled(message);
}

std::size_t DeviceMessages::waitAny(std::span<const Request> requests) {
  assert(!requests.empty());
  std::vector<const DeviceMessage*> messages;
  std::vector<Request> onHost;
  for (const Request request : requests) {
    messages.push_back(&messages_.at(request));
    if (messages.back()->way == Way::Host) onHost.push_back(messages.back()->host);
  }
  auto settled = messages.end();
  const bool allOnHost = onHost.size() == requests.size();
  const bool inTime = runUntil([&] {
    if (allOnHost && isQuiet()) return true;
    settled = std::ranges::find_if(messages, [&](const DeviceMessage* message) { return isSettled(*message); });
    return settled != messages.end();
  });
  if (!inTime) throw Error(lateSentence(*messages.front(), deadline_));
  return settled == messages.end() ? host_->waitAny(onHost) : static_cast<std::size_t>(settled - messages.begin());
}

void DeviceMessages::progress() {
  host_->progress();
  advance();
}

void DeviceMessages::requireAlive() {
  advance();
  if (!failure_.empty()) throw Error(failure_);
}

std::optional<std::pair<Ns, Ns>> DeviceMessages::timesOf(Request request) {
  if (const auto found = waited_.find(request); found != waited_.end()) return links_.times(found->second);
  const auto found = times_.find(request);
  return found == times_.end() ? std::nullopt : std::optional(found->second);
}

MessageState DeviceMessages::stateOf(Request request) noexcept {
  const auto found = messages_.find(request);
  if (found == messages_.end()) return MessageState::Unknown;
  return left_ ? found->second.last : currentState(found->second);
}

MessageState DeviceMessages::currentState(const DeviceMessage& message) const noexcept {
  try {
    if (message.way == Way::Host) return host_->stateOf(message.host);
    if (!message.operation) return MessageState::Waiting;
    return links_.stateOf ? links_.stateOf(*message.operation) : MessageState::Unknown;
  } catch (const std::exception&) {  // called for the record of a failure, which must be written even if the links are broken
    return MessageState::Unknown;
  }
}

std::optional<Communicator::Request> DeviceMessages::startCollective(Collective what, std::span<const JobRank> group, DType dtype,
                                                                     Buffer buffer) {
  advance();
  if (!links_.startCollective || (buffer.bytes > 0 && !links_.holds(buffer.data))) return std::nullopt;
  if (left_) throw Error(leftSentence());
  hangBell({});
  const auto operation = links_.startCollective(what, group, dtype, buffer);
  if (!operation) return std::nullopt;
  inFlight_.push_back(*operation);
  const Request request = next_++;
  DeviceMessage message{
      .way = Way::Collective, .peer = group.front(), .buffer = buffer, .group = {group.begin(), group.end()}, .operation = operation};
  messages_.emplace(request, std::move(message));
  return request;
}

/// Uses messages instead of the host's own barrier, so that a peer still gets what it needs from this rank before reaching the barrier.
/// Everything that was waited for is done when the device has finished.
void DeviceMessages::barrier() {
  if (left_) throw Error(leftSentence());
  device_.finish(deadline_, [this] { requireAlive(); });
  requireAlive();
  copied_.clear();
  times_.clear();
  for (const auto& [request, operation] : std::exchange(waited_, {})) times_.emplace(request, links_.times(operation));
  const bool isOpen =
      inbox_.holdsEarly() || std::ranges::any_of(messages_, [](const auto& message) { return message.second.way != Way::Host; });
  if (!isOpen) {  // otherwise some operations will be queried after it
    inFlight_.clear();
    links_.forget();
  }
  meetByMessages(*this);
}

void DeviceMessages::abort() noexcept {
  try {
    if (!left_) {
      for (auto& [request, message] : messages_) message.last = currentState(message);
    }
    if (!std::exchange(left_, true)) links_.abort();
  } catch (const std::exception&) {  // it ends with the process
  }
  host_->abort();
}

}  // namespace

std::unique_ptr<Communicator> communicatorOver(std::unique_ptr<Communicator> host, const Device& device, DeviceLinks links,
                                               std::chrono::milliseconds deadline) {
  return std::make_unique<DeviceMessages>(std::move(host), device, std::move(links), deadline);
}

}  // namespace pw
