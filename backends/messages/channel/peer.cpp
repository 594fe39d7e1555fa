#include "backends/messages/channel/peer.h"

#include <cstring>

#include <fmt/format.h>

#include "schedules/error.h"

namespace pw {
namespace {

std::size_t sizeOf(const ChannelMessage& message) {
  std::size_t bytes = message.head.size() + prefixBytes(message.parts.size());
  for (const HeldBuffer& part : message.parts) bytes += part.buffer.bytes;
  return bytes;
}

}  // namespace

bool OutgoingMessages::mayStart() const {
  if (waiting_.empty() || sizes_.size() >= window_.messages) return false;
  const std::size_t size = sizeOf(waiting_.front());
  return sizes_.empty() || (size <= window_.bytes && bytes_ <= window_.bytes - size);
}

PackedMessage OutgoingMessages::start() {
  PackedMessage message = packMessage(std::move(waiting_.front()));
  waiting_.pop_front();
  sizes_.push_back(message.bytes);
  bytes_ += message.bytes;
  ++started_;
  return message;
}

bool OutgoingMessages::noteTaken(std::uint64_t count) {
  const std::uint64_t before = started_ - sizes_.size();
  if (count > started_) return false;
  for (std::uint64_t i = before; i < count; ++i) {  // an older count may come later: nothing new
    bytes_ -= sizes_.front();
    sizes_.pop_front();
  }
  return true;
}

void OutgoingMessages::clear() {
  waiting_.clear();
  sizes_.clear();
  bytes_ = 0;
}

IncomingMessages::Unfinished& IncomingMessages::unfinished(const BlockHead& head) {
  if (head.kind != BlockKind::Message && head.kind != BlockKind::Part)
    throw Error(fmt::format("it sent a block of the unknown kind {}", static_cast<std::uint32_t>(head.kind)));
  if (head.number <= given_ || head.number - given_ > window_.messages)
    throw Error(fmt::format("it sent a block of message {} when message {} was next", head.number, given_ + 1));
  return messages_[head.number];
}

void IncomingMessages::open(Unfinished& message, std::span<const std::byte> data) const {
  std::optional<UnpackedMessage> said = message.isOpen ? std::nullopt : unpackMessage(data, window_.largestMessage);
  if (!said) throw Error(fmt::format("it sent {} bytes that are not the beginning of a message", data.size()));
  for (const auto& [index, part] : message.parts) {
    const auto& parts = said->message.parts;
    if (index >= parts.size() || part.bytes != parts[index].buffer.bytes) throw Error("it sent a part that its message does not have");
  }
  message.isOpen = true;
  message.message = std::move(said->message);
  message.largeParts = said->large.size();
}

void IncomingMessages::arrived(const BlockHead& head, std::span<const std::byte> data) {
  if (head.kind == BlockKind::Message) {
    Unfinished& message = unfinished(head);
    if (message.firstPlaced) throw Error("it began a message twice");
    return open(message, data);
  }
  const HeldBuffer memory = place(head, data.size());
  std::memcpy(memory.buffer.data, data.data(), data.size());
  placed(head, memory);
}

HeldBuffer IncomingMessages::place(const BlockHead& head, std::size_t bytes) {
  Unfinished& message = unfinished(head);
  const bool fits = bytes_ <= window_.bytes && bytes <= window_.bytes - bytes_;
  const bool isAlone = messages_.size() == 1 && message.bytes <= window_.largestMessage && bytes <= window_.largestMessage - message.bytes;
  if (!fits && !isAlone) throw Error(fmt::format("it sent {} bytes at once, more than is allowed", bytes));
  if (head.kind == BlockKind::Message) {
    if (message.firstPlaced || message.isOpen) throw Error("it began a message twice");
    message.firstPlaced = true;
  } else {
    const auto& parts = message.message.parts;
    const bool isKnown = !message.isOpen || (head.part < parts.size() && parts[head.part].buffer.bytes == bytes);
    if (bytes < kInlinePart || !isKnown || !message.parts.try_emplace(head.part, Part{bytes, {}}).second)
      throw Error("it sent a part that its message does not have");
  }
  HeldBuffer memory = memory_->take(bytes);
  message.bytes += bytes;
  bytes_ += bytes;
  return memory;
}

void IncomingMessages::placed(const BlockHead& head, HeldBuffer data) {
  Unfinished& message = unfinished(head);
  if (head.kind == BlockKind::Message) return open(message, {data.buffer.data, data.buffer.bytes});
  message.parts.at(head.part).data = std::move(data);
  ++message.partsHere;
}

void IncomingMessages::takeReady(std::vector<ChannelMessage>& ready) {
  while (!messages_.empty()) {
    const auto next = messages_.begin();
    Unfinished& message = next->second;
    if (next->first != given_ + 1 || !message.isOpen || message.partsHere < message.largeParts) return;
    for (auto& [index, part] : message.parts) message.message.parts[index] = std::move(part.data);
    ready.push_back(std::move(message.message));
    bytes_ -= message.bytes;
    ++given_;
    messages_.erase(next);
  }
}

}  // namespace pw
