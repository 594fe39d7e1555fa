#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "backends/messages/channel/link.h"
#include "backends/messages/channel/message.h"
#include "backends/messages/channel/peer.h"

namespace pw {

struct ChannelOptions {
  /// A rank from which nothing came for so long is lost: ranks say at least four times as often that they live. Longer than a part of a
  /// message takes over the slowest connection.
  std::chrono::milliseconds lostAfter{10'000};
  MessageWindow window{};
  /// [bytes] of memory for large parts that is kept to be used again.
  std::size_t keptMemory = 256 << 20;
};

/// Messages of any size between all ranks of a job that nobody posted a receive for. From one rank to another they keep their order, each
/// arrives once, and what a rank has sent but the other has not handled is bounded by the window: the rest waits at the sender. One thread
/// of the channel moves them; it polls for a short while after the last event and then sleeps. Blocks that a rank of this job did not write
/// (token) have no effect; a rank that breaks the protocol is lost.
class MessageChannel {
 public:
  /// The parts are this rank's own memory, aligned to 64 bytes.
  using OnMessage = std::function<void(JobRank from, ChannelMessage message)>;
  /// Nothing comes from that rank any more, nor is anything sent to it. Called once for each rank that ended, fell silent or left.
  using OnLost = std::function<void(JobRank rank, std::string why)>;

  /// Connects (`link` throws Error naming what failed) and starts. The handlers are called on the channel's thread, one at a time, until
  /// `close` has returned. They must return quickly, because a rank whose channel stands still looks lost, and must not throw or close.
  MessageChannel(const LinkMaker& link, OnMessage onMessage, OnLost onLost, const ChannelOptions& options = {});
  /// Closes at once: what was not sent yet is dropped.
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  [[nodiscard]] JobRank rank() const;
  [[nodiscard]] int size() const;

  /// Returns at once; any thread may call it, handlers too. The parts are memory of the host and must not change any
  /// more: large ones are read later, without a copy.
  /// A rank may send to itself and gets a copy. Messages to a lost rank, and after `close`, are dropped. Throws UsageError for a message
  /// above the window's largest, or to a rank that is not of the job.
  void send(JobRank to, ChannelMessage message);

  /// Waits until all that was sent has been handled by ranks that are not lost, at most until the deadline, while messages still come in;
  /// then tells the others, ends the connections and the thread. Returns whether all was handled. A rank that closed is lost to those that
  /// still send to it: who must agree on the end does so by messages first. A second call does nothing.
  bool close(std::chrono::milliseconds deadline);

 private:
  class Engine;
  std::unique_ptr<Engine> engine_;
};

}  // namespace pw
