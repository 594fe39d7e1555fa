#include "backends/messages/synthetic_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "schedules/error.h"

namespace pw {
namespace {

/// What stands at an offset of a message: a sum of all that follows, a sign that this is one of ours, the label (transfer, microbatch,
/// kind, step), the length and the offset.
using Block = std::array<std::uint64_t, 8>;
constexpr std::uint64_t kSign = 0x70772073796E7468;

/// Steele, Lea and Flood's SplitMix64 over the words after the first.
std::uint64_t sumOf(const Block& block) {
  std::uint64_t sum = 0;
  for (std::size_t i = 1; i < block.size(); ++i) {
    sum += block[i] + 0x9E3779B97F4A7C15;
    sum = (sum ^ (sum >> 30U)) * 0xBF58476D1CE4E5B9;
    sum = (sum ^ (sum >> 27U)) * 0x94D049BB133111EB;
    sum ^= sum >> 31U;
  }
  return sum;
}

Block blockOf(const MessageLabel& label, std::size_t bytes, std::size_t offset) {
  const auto kind = static_cast<std::uint64_t>(label.kind), step = static_cast<std::uint64_t>(label.step);
  Block block{0, kSign, label.transfer, label.microbatch.index(), kind, step, bytes, offset};
  block[0] = sumOf(block);
  return block;
}

/// Calls `at(offset, bytes)` for the parts of a message that are written and compared; they do not overlap.
template <class At>
void forBlocks(std::size_t bytes, At at) {
  constexpr std::size_t size = sizeof(Block);
  at(std::size_t{0}, std::min(size, bytes));
  if (bytes >= 3 * size) at(bytes / 2 - size / 2, size);
  if (bytes >= 2 * size) at(bytes - size, size);
}

/// What a wrong part of a message is instead.
std::string found(Buffer message, std::size_t offset, std::size_t bytes) {
  Block block{};
  std::memcpy(block.data(), message.data + offset, bytes);
  if (block[1] != kSign || block[0] != sumOf(block)) return "something that is not a message of a rehearsal";
  const auto kind = block[4] == 0 ? MessageLabel::Kind::Value : MessageLabel::Kind::Gradient;
  const MessageLabel label{kind, block[2], Microbatch(block[3]), static_cast<int>(block[5])};
  return fmt::format("byte {} of {} bytes of {}", block[7], block[6], label.text());
}

}  // namespace

std::string MessageLabel::text() const {
  return fmt::format("the {} of transfer {}, microbatch {}, step {}", kind == Kind::Value ? "value" : "gradient", transfer,
                     microbatch.value, step);
}

void writeLabel(const MessageLabel& label, Buffer message) {
  if (message.bytes == 0) return;
  forBlocks(message.bytes, [&](std::size_t offset, std::size_t bytes) {
    std::memcpy(message.data + offset, blockOf(label, message.bytes, offset).data(), bytes);
  });
}

void requireLabel(const MessageLabel& label, Buffer message) {
  if (message.bytes == 0) return;
  forBlocks(message.bytes, [&](std::size_t offset, std::size_t bytes) {
    if (std::memcmp(message.data + offset, blockOf(label, message.bytes, offset).data(), bytes) == 0) return;
    throw Error(fmt::format("{} went astray: its byte {} holds {}; try another --backend to see whether the transport is at fault.",
                            label.text(), offset, found(message, offset, bytes)));
  });
}

}  // namespace pw
