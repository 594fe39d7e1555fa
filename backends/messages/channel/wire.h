#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backends/messages/channel/link.h"
#include "backends/messages/channel/message.h"

namespace pw {

// How a message is written as blocks. Its first block holds, as 64-bit numbers of the host: bytes of the head, number of parts, bytes of
// each part; then the head, and the parts below kInlinePart one after the other. Each other part is a block of its own.

inline constexpr std::size_t kInlinePart = 8 << 10;  ///< [bytes] below, a copy costs less than a block

/// [bytes] of the numbers that begin the first block of a message.
[[nodiscard]] constexpr std::size_t prefixBytes(std::size_t parts) { return (2 + parts) * sizeof(std::uint64_t); }

/// What a block from one rank to another must show.
[[nodiscard]] std::uint64_t blockKey(const std::string& token, JobRank from, JobRank to);

/// A message as blocks.
struct PackedMessage {
  struct Part {
    std::size_t index = 0;
    HeldBuffer data;
  };
  HeldBuffer first;
  std::vector<Part> large;
  std::size_t bytes = 0;  ///< of all blocks
};

/// Copies the head and the small parts.
[[nodiscard]] PackedMessage packMessage(ChannelMessage message);

/// What the first block of a message says.
struct UnpackedMessage {
  ChannelMessage message;          ///< with all small parts
  std::vector<std::size_t> large;  ///< positions of the parts that come as blocks of their own; their buffers have a size and no memory
};

/// Nothing if that is not what `packMessage` writes, or if the message has more than `largest` bytes. Allocates no more than a small
/// multiple of what `first` holds.
[[nodiscard]] std::optional<UnpackedMessage> unpackMessage(std::span<const std::byte> first, std::size_t largest);

/// A copy that shares nothing with it.
[[nodiscard]] ChannelMessage copyOf(const ChannelMessage& message);

}  // namespace pw
