#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "backends/messages/channel/block_memory.h"
#include "backends/messages/channel/link.h"
#include "backends/messages/channel/message.h"
#include "backends/messages/channel/wire.h"

namespace pw {

// The two directions between this rank and another: which messages may be sent, and which have come.

/// How much one rank may send to another before messages are acknowledged as handled. A single message may be larger than the window.
struct MessageWindow {
  std::uint64_t messages = 1024;
  std::size_t bytes = 256 << 20;
  std::size_t largestMessage = std::size_t{16} << 30;
};

/// Messages to a rank: those that wait, and the sizes of those that were sent and not yet handled there.
class OutgoingMessages {
 public:
  explicit OutgoingMessages(const MessageWindow& window) : window_(window) {}
  void push(ChannelMessage message) { waiting_.push_back(std::move(message)); }
  /// Whether the next message may go now.
  [[nodiscard]] bool mayStart() const;
  /// The next message, counted as in flight; its number is `number()`.
  [[nodiscard]] PackedMessage start();
  [[nodiscard]] std::uint64_t number() const { return started_; }
  /// Notes how many messages the other rank has handled in all; false where that number is impossible.
  [[nodiscard]] bool noteTaken(std::uint64_t count);
  /// Whether nothing waits and everything was handled.
  [[nodiscard]] bool isDone() const { return waiting_.empty() && sizes_.empty(); }
  /// Drops everything: nothing more will be sent.
  void clear();

 private:
  MessageWindow window_;
  std::deque<ChannelMessage> waiting_;
  std::deque<std::size_t> sizes_;  ///< of those in flight, in order
  std::size_t bytes_ = 0;          ///< their sum
  std::uint64_t started_ = 0;
};

/// Messages from a rank, assembled from blocks in any order, and delivered in order. Each call that takes a block throws Error saying
/// what is wrong with it, after which only `clear` makes sense.
class IncomingMessages {
 public:
  IncomingMessages(const MessageWindow& window, const BlockMemory& memory) : window_(window), memory_(&memory) {}
  void arrived(const BlockHead& head, std::span<const std::byte> data);
  [[nodiscard]] HeldBuffer place(const BlockHead& head, std::size_t bytes);
  void placed(const BlockHead& head, HeldBuffer data);
  /// Removes the messages that are complete and next in order, and appends them to `ready`.
  void takeReady(std::vector<ChannelMessage>& ready);
  /// Drops everything: nothing more will arrive.
  void clear() { messages_.clear(); }

 private:
  struct Part {
    std::size_t bytes = 0;
    HeldBuffer data;  ///< no owner: it is on its way
  };
  /// A message of which something is here or on its way.
  struct Unfinished {
    bool firstPlaced = false, isOpen = false;
    ChannelMessage message;               ///< once open
    std::size_t largeParts = 0;           ///< once open
    std::map<std::uint64_t, Part> parts;  ///< large ones, by position
    std::size_t partsHere = 0;
    std::size_t bytes = 0;  ///< that were placed
  };
  Unfinished& unfinished(const BlockHead& head);
  void open(Unfinished& message, std::span<const std::byte> data) const;

  MessageWindow window_;
  const BlockMemory* memory_;
  std::map<std::uint64_t, Unfinished> messages_;  ///< by number
  std::uint64_t given_ = 0;                       ///< how many were given out
  std::size_t bytes_ = 0;                         ///< that were placed for messages that were not given out
};

}  // namespace pw
