#include "backends/device_messages.h"

#include <algorithm>
#include <cassert>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "backends/transport.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Clock = std::chrono::steady_clock;

/// Announcements of one sender to one receiver take these tags in turn; there may be more of them under way, as messages of one tag keep their order.
constexpr std::uint32_t kFirstTag = 0x7FFF0500, kTags = 0x100;
constexpr std::uint32_t kBellTag = kFirstTag + kTags;

/// What is sent to the receiver of a message, over the host's transport.
struct Announcement {
  std::uint64_t bytes = 0;
  std::uint32_t tag = 0, unused = 0;
};

enum class Way : std::uint8_t { Host, Send, Receive };

/// A message that was asked for and not waited for. The host's transport holds the address of `announcement`.
struct Message {
  Way way = Way::Host;
  bool sending = false;
  Rank peer;
  std::uint32_t tag = 0;
  Buffer buffer;
  Communicator::Ticket host = 0;             ///< of Host: its own; of Send: its announcement's
  Announcement announcement{};               ///< of Send
  std::optional<std::uint64_t> operation{};  ///< the links'; of Receive: once the message is announced
  HeldBuffer kept{};                         ///< where it was received before it was asked for
  std::string failure{};                     ///< why it cannot be had although it came
};

/// A message that came before it was asked for.
struct Early {
  std::uint64_t operation = 0;
  HeldBuffer memory;
};

/// Another rank. The host's transport holds the address of `announcement` while one is expected.
struct Peer {
  std::uint32_t announcementsOut = 0, announcementsIn = 0;
  std::optional<Communicator::Ticket> expected;  ///< the next announcement; while a message is wanted
  Announcement announcement;
  std::map<std::uint32_t, std::deque<Communicator::Ticket>> wanted;  ///< by tag: receives that were not announced; no empty ones
  std::map<std::uint32_t, std::deque<Early>> early;                  ///< by tag, in the order they came; no empty ones
};

Buffer bytesOf(Announcement& announcement) { return {reinterpret_cast<std::byte*>(&announcement), sizeof announcement}; }

std::uint32_t nextTag(std::uint32_t& count) { return kFirstTag + count++ % kTags; }

/// Takes the first of a tag's queue.
template <class Value>
std::optional<Value> takeFirst(std::map<std::uint32_t, std::deque<Value>>& queues, std::uint32_t tag) {
  const auto queue = queues.find(tag);
  if (queue == queues.end()) return std::nullopt;
  Value first = std::move(queue->second.front());
  queue->second.pop_front();
  if (queue->second.empty()) queues.erase(queue);
  return first;
}

class DeviceMessages final : public Communicator {
 public:
  DeviceMessages(std::unique_ptr<Communicator> host, const Device& device, DeviceLinks links, std::chrono::milliseconds deadline)
      : device_(device), deadline_(deadline), peers_(static_cast<std::size_t>(host->size())), host_(std::move(host)), links_(std::move(links)) {}
  ~DeviceMessages() override;
  DeviceMessages(const DeviceMessages&) = delete;
  DeviceMessages& operator=(const DeviceMessages&) = delete;

  [[nodiscard]] Rank rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }
  Ticket send(Rank to, std::uint32_t tag, Buffer buffer) override;
  Ticket receive(Rank from, std::uint32_t tag, Buffer buffer) override;
  void wait(Ticket ticket) override;
  std::optional<bool> isDone(Ticket ticket) override;
  std::size_t waitAny(std::span<const Ticket> tickets) override;
  void progress() override;
  std::optional<std::pair<Ns, Ns>> timesOf(Ticket ticket) override;
  void barrier() override;
  void abort() noexcept override;

 private:
  [[nodiscard]] bool isOnDevice(Buffer buffer) const { return buffer.bytes > 0 && links_.holds(buffer.data); }
  void hangBell(Ticket announcement);
  void expectAnnouncement(Rank rank);
  void take(Rank from, const Announcement& announcement);
  void listen(Rank rank);
  void advance();
  [[nodiscard]] bool isQuiet() const;
  [[nodiscard]] bool isMoved(const Message& message) const;
  [[nodiscard]] bool isSettled(const Message& message) const;
  void finishReceive(Ticket ticket, Message& message);
  void cancel(Ticket ticket);
  template <class Condition>
  bool runUntil(Condition condition);

  const Device& device_;
  std::chrono::milliseconds deadline_;
  std::vector<Peer> peers_;
  std::unordered_map<Ticket, Message> messages_;
  Ticket next_ = 1;
  std::deque<std::uint64_t> underWay_;               ///< operations not known to be done
  std::unordered_map<Ticket, std::uint64_t> waited_;  ///< operations of messages since the last barrier
  std::vector<HeldBuffer> copied_;                   ///< what the device may still copy from
  std::optional<Ticket> bell_;                       ///< a message from this rank to itself that does not come: its receive ends when the job fails
  std::byte bellByte_{};
  std::string failure_;  ///< of the job
  bool left_ = false;
  // Last: they may write to the memory above until they are gone, and the links use the host's transport.
  std::unique_ptr<Communicator> host_;
  DeviceLinks links_;
};

/// Nothing is written to memory any more when this ends. What is open with the host's transport is ended, unless messages are: it takes those for a
/// failure, and rightly.
DeviceMessages::~DeviceMessages() {
  if (left_ || !bell_) return;
  try {
    advance();
    if (!underWay_.empty()) links_.abort();
    if (!failure_.empty()) return;
    host_->wait(host_->send(rank(), kBellTag, {&bellByte_, 1}));
    host_->wait(*bell_);
  } catch (const Error&) {  // the job fails: nobody is left to tell
  }
}

/// At the first message of a device: from then on the job's failure shows while this rank waits for its device only.
void DeviceMessages::hangBell(Ticket announcement) {
  if (bell_) return;
  if (!host_->isDone(announcement)) throw UsageError("the transport gloo cannot announce messages of GPUs; use the transport ucx");
  bell_ = host_->receive(rank(), kBellTag, {&bellByte_, 1});
}

Communicator::Ticket DeviceMessages::send(Rank to, std::uint32_t tag, Buffer buffer) {
  assert(to.value >= 0 && to.value < size());
  advance();
  const bool onDevice = isOnDevice(buffer);
  if (onDevice && left_) throw Error(leftSentence());
  Message message{.way = onDevice ? Way::Send : Way::Host, .sending = true, .peer = to, .tag = tag, .buffer = buffer};
  if (!onDevice) message.host = host_->send(to, tag, buffer);
  const Ticket ticket = next_++;
  Message& asked = messages_.emplace(ticket, std::move(message)).first->second;
  if (onDevice) {
    asked.announcement = {.bytes = buffer.bytes, .tag = tag};
    asked.host = host_->send(to, nextTag(peers_[to.index()].announcementsOut), bytesOf(asked.announcement));
    hangBell(asked.host);
    asked.operation = links_.send(to, buffer);
    underWay_.push_back(*asked.operation);
  }
  return ticket;
}

Communicator::Ticket DeviceMessages::receive(Rank from, std::uint32_t tag, Buffer buffer) {
  assert(from.value >= 0 && from.value < size());
  advance();
  const bool onDevice = isOnDevice(buffer);
  if (onDevice && left_) throw Error(leftSentence());
  Message message{.way = onDevice ? Way::Receive : Way::Host, .sending = false, .peer = from, .tag = tag, .buffer = buffer};
  if (!onDevice) message.host = host_->receive(from, tag, buffer);
  const Ticket ticket = next_++;
  Message& asked = messages_.emplace(ticket, std::move(message)).first->second;
  if (onDevice) {
    Peer& peer = peers_[from.index()];
    if (auto early = takeFirst(peer.early, tag)) {
      asked.operation = early->operation;
      asked.kept = std::move(early->memory);
      const std::size_t got = asked.kept.buffer.bytes;
      if (got != buffer.bytes) asked.failure = sizeSentence(rank(), from, tag, buffer.bytes, got);
    } else {
      peer.wanted[tag].push_back(ticket);
      if (!peer.expected) expectAnnouncement(from);
      advance();
    }
  }
  return ticket;
}

void DeviceMessages::expectAnnouncement(Rank rank) {
  Peer& peer = peers_[rank.index()];
  peer.expected = host_->receive(rank, nextTag(peer.announcementsIn), bytesOf(peer.announcement));
  hangBell(*peer.expected);
}

/// Begins to receive what is announced: where it is wanted, else, or when it is of another size, into memory of ours.
void DeviceMessages::take(Rank from, const Announcement& announcement) {
  Peer& peer = peers_[from.index()];
  const auto ticket = takeFirst(peer.wanted, announcement.tag);
  Message* const message = ticket ? &messages_.at(*ticket) : nullptr;
  const bool fits = message != nullptr && message->buffer.bytes == announcement.bytes;
  HeldBuffer memory;
  if (!fits) memory = device_.allocate(announcement.bytes);
  const std::uint64_t operation = links_.receive(from, fits ? message->buffer : memory.buffer);
  underWay_.push_back(operation);
  if (message == nullptr) {
    peer.early[announcement.tag].push_back({operation, std::move(memory)});
    return;
  }
  message->operation = operation;
  if (fits) return;
  message->kept = std::move(memory);
  message->failure = sizeSentence(rank(), from, announcement.tag, message->buffer.bytes, announcement.bytes);
}

/// Takes the announcements that came from a rank, in their order.
void DeviceMessages::listen(Rank rank) {
  Peer& peer = peers_[rank.index()];
  while (peer.expected && host_->isDone(*peer.expected).value_or(false)) {
    const Ticket ticket = *std::exchange(peer.expected, std::nullopt);
    host_->wait(ticket);
    take(rank, Announcement(peer.announcement));
    // Only while something is wanted: a receive that is left open at the end is a failure to the host's transport.
    if (!peer.wanted.empty()) expectAnnouncement(rank);
  }
}

/// Lets all messages of the device move on; a failure is kept for whoever waits.
void DeviceMessages::advance() {
  if (!bell_ || left_ || !failure_.empty()) return;
  try {
    if (host_->isDone(*bell_).value_or(false)) host_->wait(*bell_);
    for (int r = 0; r < size(); ++r) listen(Rank(r));
    while (!underWay_.empty() && links_.isDone(underWay_.front())) underWay_.pop_front();
  } catch (const Error& error) {
    failure_ = error.what();
  }
}

/// Whether nothing of the device is under way, so that waits may be left to the host's transport.
bool DeviceMessages::isQuiet() const {
  const auto isExpected = [](const Peer& peer) { return peer.expected.has_value(); };
  return !bell_ || left_ || !failure_.empty() || (underWay_.empty() && std::ranges::none_of(peers_, isExpected));
}

/// Whether a message's wait would end well at once.
bool DeviceMessages::isMoved(const Message& message) const {
  switch (message.way) {
    case Way::Host: return host_->isDone(message.host).value_or(false);
    case Way::Send: return links_.isDone(*message.operation) && host_->isDone(message.host).value_or(false);
    case Way::Receive: return message.operation.has_value();
  }
  return false;
}

bool DeviceMessages::isSettled(const Message& message) const {
  return left_ || (message.way != Way::Host && !failure_.empty()) || isMoved(message);
}

/// Runs the transports until the condition holds; false when the time is over first.
template <class Condition>
bool DeviceMessages::runUntil(Condition condition) {
  for (const auto end = Clock::now() + deadline_;;) {
    advance();
    if (condition()) return true;
    if (Clock::now() >= end) return false;
    std::this_thread::yield();
  }
}

void DeviceMessages::wait(Ticket ticket) {
  const auto found = messages_.find(ticket);
  assert(found != messages_.end());
  Message& message = found->second;
  const bool onHost = message.way == Way::Host;
  if (!onHost && left_) throw Error(leftSentence());
  const bool inTime = runUntil([&] { return (onHost && isQuiet()) || isSettled(message); });
  if (!inTime || (!onHost && !failure_.empty() && (!message.operation || !links_.isDone(*message.operation)))) {
    const std::string sentence = inTime ? failure_ : lateSentence(message.sending, message.peer, deadline_);
    cancel(ticket);
    throw Error(sentence);
  }
  if (message.way == Way::Receive) {
    finishReceive(ticket, message);
  } else {
    if (!onHost) waited_.emplace(ticket, *message.operation);
    host_->wait(message.host);
  }
  messages_.erase(ticket);
}

/// Puts what compute does from now on behind a message that was announced.
void DeviceMessages::finishReceive(Ticket ticket, Message& message) {
  if (!message.failure.empty()) {
    const std::string sentence = message.failure;
    copied_.push_back(std::move(message.kept));  // it may still be written to
    messages_.erase(ticket);
    throw Error(sentence);
  }
  links_.order(*message.operation);
  waited_.emplace(ticket, *message.operation);
  if (message.kept.buffer.bytes == 0) return;
  device_.copy(message.buffer, message.kept.buffer);
  copied_.push_back(std::move(message.kept));
}

/// Nothing will be written into the buffer of a message that was not announced.
void DeviceMessages::cancel(Ticket ticket) {
  const Message& message = messages_.at(ticket);
  if (message.way != Way::Receive || message.operation) return;
  auto& wanted = peers_[message.peer.index()].wanted;
  const auto queue = wanted.find(message.tag);
  if (queue == wanted.end()) return;
  std::erase(queue->second, ticket);
  if (queue->second.empty()) wanted.erase(queue);
}

std::optional<bool> DeviceMessages::isDone(Ticket ticket) {
  advance();
  const Message& message = messages_.at(ticket);
  if (message.way == Way::Host) return host_->isDone(message.host);
  return isSettled(message);
}

std::size_t DeviceMessages::waitAny(std::span<const Ticket> tickets) {
  assert(!tickets.empty());
  std::vector<const Message*> messages;
  std::vector<Ticket> onHost;
  for (const Ticket ticket : tickets) {
    messages.push_back(&messages_.at(ticket));
    if (messages.back()->way == Way::Host) onHost.push_back(messages.back()->host);
  }
  auto settled = messages.end();
  const bool allOnHost = onHost.size() == tickets.size();
  const bool inTime = runUntil([&] {
    if (allOnHost && isQuiet()) return true;
    settled = std::ranges::find_if(messages, [&](const Message* message) { return isSettled(*message); });
    return settled != messages.end();
  });
  if (!inTime) throw Error(lateSentence(messages.front()->sending, messages.front()->peer, deadline_));
  return settled == messages.end() ? host_->waitAny(onHost) : static_cast<std::size_t>(settled - messages.begin());
}

void DeviceMessages::progress() {
  host_->progress();
  advance();
}

std::optional<std::pair<Ns, Ns>> DeviceMessages::timesOf(Ticket ticket) {
  const auto found = waited_.find(ticket);
  return found == waited_.end() ? std::nullopt : std::optional(links_.times(found->second));
}

/// By messages of ours and not by the host's own barrier, so that a peer gets what it needs of this rank before it comes.
void DeviceMessages::barrier() {
  if (left_) throw Error(leftSentence());
  device_.finish(deadline_);
  advance();
  if (!failure_.empty()) throw Error(failure_);
  copied_.clear();
  waited_.clear();
  const bool isOpen = std::ranges::any_of(messages_, [](const auto& message) { return message.second.way != Way::Host; }) ||
                      std::ranges::any_of(peers_, [](const Peer& peer) { return !peer.early.empty(); });
  if (!isOpen) {  // else some operations will be asked about after it
    underWay_.clear();
    links_.forget();
  }
  meetByMessages(*this);
}

void DeviceMessages::abort() noexcept {
  try {
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
