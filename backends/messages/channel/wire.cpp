#include "backends/messages/channel/wire.h"

#include <cstring>
#include <memory>
#include <utility>

#include "backends/messages/channel/block_memory.h"
#include "simulator/text/digest.h"

namespace pw {
namespace {

constexpr std::size_t kNumber = sizeof(std::uint64_t);

std::size_t aligned(std::size_t bytes) { return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment; }

/// Memory that is freed with its last owner. Parts of the same memory share it.
HeldBuffer memoryOf(std::size_t bytes) {
  const std::shared_ptr<std::byte[]> memory(new (std::align_val_t(kPartAlignment)) std::byte[bytes],
                                            [](std::byte* given) { ::operator delete[](given, std::align_val_t(kPartAlignment)); });
  return {{memory.get(), bytes}, memory};
}

void put(std::byte*& at, const void* from, std::size_t bytes) {
  if (bytes > 0) std::memcpy(at, from, bytes);
  at += bytes;
}

void put(std::byte*& at, std::uint64_t number) { put(at, &number, kNumber); }

std::uint64_t numberAt(std::span<const std::byte> bytes, std::size_t position) {
  std::uint64_t number = 0;
  std::memcpy(&number, bytes.data() + position * kNumber, kNumber);
  return number;
}

}  // namespace

std::uint64_t blockKey(const std::string& token, JobRank from, JobRank to) {
  const std::string proof = hmacSha256(token, "block " + std::to_string(from.value) + ' ' + std::to_string(to.value));
  std::uint64_t key = 0;
  std::memcpy(&key, proof.data(), sizeof key);
  return key;
}

PackedMessage packMessage(ChannelMessage message) {
  PackedMessage result;
  std::size_t bytes = prefixBytes(message.parts.size()) + message.head.size();
  for (std::size_t i = 0; i < message.parts.size(); ++i) {
    HeldBuffer& part = message.parts[i];
    if (part.buffer.bytes < kInlinePart) {
      bytes += part.buffer.bytes;
    } else {
      result.bytes += part.buffer.bytes;
    }
  }
  result.bytes += bytes;
  result.first = memoryOf(bytes);
  std::byte* at = result.first.buffer.data;
  put(at, message.head.size());
  put(at, message.parts.size());
  for (const HeldBuffer& part : message.parts) put(at, part.buffer.bytes);
  put(at, message.head.data(), message.head.size());
  for (std::size_t i = 0; i < message.parts.size(); ++i) {
    HeldBuffer& part = message.parts[i];
    if (part.buffer.bytes < kInlinePart) {
      put(at, part.buffer.data, part.buffer.bytes);
    } else {
      result.large.push_back({i, std::move(part)});
    }
  }
  return result;
}

std::optional<UnpackedMessage> unpackMessage(std::span<const std::byte> first, std::size_t largest) {
  if (first.size() < 2 * kNumber || first.size() > largest) return std::nullopt;
  const std::uint64_t headBytes = numberAt(first, 0), parts = numberAt(first, 1);
  if (parts > first.size() / kNumber - 2) return std::nullopt;
  std::size_t rest = first.size() - prefixBytes(parts);
  if (headBytes > rest) return std::nullopt;
  rest -= headBytes;
  std::size_t total = first.size(), room = 0;
  UnpackedMessage result;
  for (std::size_t i = 0; i < parts; ++i) {
    const std::uint64_t bytes = numberAt(first, 2 + i);
    const bool isSmall = bytes < kInlinePart;
    if (bytes > (isSmall ? rest : largest - total)) return std::nullopt;
    (isSmall ? rest : total) = isSmall ? rest - bytes : total + bytes;
    if (isSmall) room += aligned(bytes);
    result.message.parts.push_back({{nullptr, bytes}, nullptr});
    if (!isSmall) result.large.push_back(i);
  }
  if (rest != 0) return std::nullopt;
  const auto* at = first.data() + prefixBytes(parts);
  result.message.head.assign(reinterpret_cast<const char*>(at), headBytes);
  at += headBytes;
  const HeldBuffer memory = room > 0 ? memoryOf(room) : HeldBuffer{};
  std::byte* to = memory.buffer.data;
  for (HeldBuffer& part : result.message.parts) {
    const std::size_t bytes = part.buffer.bytes;
    if (bytes == 0 || bytes >= kInlinePart) continue;
    std::memcpy(to, at, bytes);
    part = {{to, bytes}, memory.owner};
    to += aligned(bytes);
    at += bytes;
  }
  return result;
}

ChannelMessage copyOf(const ChannelMessage& message) {
  ChannelMessage copy{message.head, {}};
  for (const HeldBuffer& part : message.parts) {
    copy.parts.push_back(part.buffer.bytes > 0 ? memoryOf(part.buffer.bytes) : HeldBuffer{});
    if (part.buffer.bytes > 0) std::memcpy(copy.parts.back().buffer.data, part.buffer.data, part.buffer.bytes);
  }
  return copy;
}

}  // namespace pw
