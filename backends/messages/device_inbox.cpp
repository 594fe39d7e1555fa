#include "backends/messages/device_inbox.h"

#include <algorithm>
#include <utility>

#include "backends/messages/tags.h"
#include "backends/messages/transport.h"

namespace pw {
namespace {

Buffer bytesOf(Announcement& announcement) { return {reinterpret_cast<std::byte*>(&announcement), sizeof announcement}; }

/// Announcements from one sender to one receiver take the tags in turn; more may be in flight, as messages with one tag keep their order.
std::uint32_t nextTag(std::uint32_t& count) { return kAnnouncementTags.first + count++ % kAnnouncementTags.count; }

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

}  // namespace

Communicator::Request DeviceInbox::announce(DeviceMessage& message) {
  message.announcement = {.bytes = message.buffer.bytes, .tag = message.tag};
  return host_.send(message.peer, nextTag(peers_[message.peer.index()].announcementsOut), bytesOf(message.announcement));
}

std::optional<Communicator::Request> DeviceInbox::want(DeviceMessage& message) {
  Peer& peer = peers_[message.peer.index()];
  if (auto early = takeFirst(peer.early, message.tag)) {
    message.operation = early->operation;
    message.kept = std::move(early->memory);
    const std::size_t got = message.kept.buffer.bytes;
    if (got != message.buffer.bytes) message.failure = sizeSentence(host_.rank(), message.peer, message.tag, message.buffer.bytes, got);
    return std::nullopt;
  }
  peer.wanted[message.tag].push_back(&message);
  return peer.expected ? std::nullopt : std::optional(expect(message.peer));
}

Communicator::Request DeviceInbox::expect(JobRank from) {
  Peer& peer = peers_[from.index()];
  peer.expected = host_.receive(from, nextTag(peer.announcementsIn), bytesOf(peer.announcement));
  return *peer.expected;
}

/// Receives an announced message into the buffer that requested it or, if there is none or its size differs, into our own memory. Returns
/// the operation.
std::uint64_t DeviceInbox::take(JobRank from, const Announcement& announcement) {
  Peer& peer = peers_[from.index()];
  DeviceMessage* const message = takeFirst(peer.wanted, announcement.tag).value_or(nullptr);
  const bool fits = message != nullptr && message->buffer.bytes == announcement.bytes;
  HeldBuffer memory;
  if (!fits) memory = device_.allocate(announcement.bytes);
  const std::uint64_t operation = links_.receive(from, fits ? message->buffer : memory.buffer);
  if (message == nullptr) {
    peer.early[announcement.tag].push_back({operation, std::move(memory)});
    return operation;
  }
  message->operation = operation;
  if (fits) return operation;
  message->kept = std::move(memory);
  message->failure = sizeSentence(host_.rank(), from, announcement.tag, message->buffer.bytes, announcement.bytes);
  return operation;
}

/// Each rank's in their order.
void DeviceInbox::listen(std::deque<std::uint64_t>& inFlight) {
  for (std::size_t r = 0; r < peers_.size(); ++r) {
    Peer& peer = peers_[r];
    while (peer.expected && host_.isDone(*peer.expected).value_or(false)) {
      host_.wait(*std::exchange(peer.expected, std::nullopt));
      inFlight.push_back(take(JobRank(r), Announcement(peer.announcement)));
      // Only while a message is requested: the host's transport treats a receive that is open at the end as a failure.
      if (!peer.wanted.empty()) static_cast<void>(expect(JobRank(r)));
    }
  }
}

void DeviceInbox::cancel(const DeviceMessage& message) {
  if (message.way != Way::Receive || message.operation) return;
  auto& wanted = peers_[message.peer.index()].wanted;
  const auto queue = wanted.find(message.tag);
  if (queue == wanted.end()) return;
  std::erase(queue->second, &message);
  if (queue->second.empty()) wanted.erase(queue);
}

bool DeviceInbox::isExpecting() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) { return peer.expected.has_value(); });
}

bool DeviceInbox::holdsEarly() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) { return !peer.early.empty(); });
}

}  // namespace pw
