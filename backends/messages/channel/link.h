#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "backends/messages/channel/shared_memory.h"
#include "backends/messages/communicator.h"

namespace pw {

// What a transport offers a MessageChannel: blocks that nobody posted a receive for, between all ranks of a job.

enum class BlockKind : std::uint32_t {
  Message = 1,  ///< the head of a message, the sizes of its parts, and its small parts
  Part,         ///< one large part of a message
  Beat,         ///< a heartbeat, which also says what its sender has handled
  Bye,          ///< the last one: its sender leaves
};

/// Accompanies each block, byte by byte as it is in memory. Not trusted: everything in it may be wrong.
struct BlockHead {
  std::uint64_t key = 0;  ///< proves that rank `from` of this job wrote it for this rank (`blockKey`)
  std::uint32_t from = 0;
  BlockKind kind = BlockKind::Beat;
  std::uint64_t number = 0;  ///< of the message among those from one rank to another: 1, 2, …
  std::uint64_t part = 0;    ///< which part of the message
  std::uint64_t taken = 0;   ///< how many messages of the other direction were handled
};

/// What a link tells its user. Called only from within calls of `MessageLink`, and while it connects; must not call the link, nor throw.
struct LinkEvents {
  /// A block is here; the data is valid during the call.
  std::function<void(const BlockHead& head, std::span<const std::byte> data)> arrived;
  /// Large data is about to arrive: memory for it, at least `bytes`, or none to refuse it.
  std::function<HeldBuffer(const BlockHead& head, std::size_t bytes)> place;
  /// The data has arrived in the memory that `place` gave.
  std::function<void(const BlockHead& head, HeldBuffer data)> placed;
  /// Blocks to or from this rank will not arrive any more. May be called several times.
  std::function<void(JobRank rank, std::string why)> lost;
  /// From which `place` takes memory of 2 MiB and more while there is room; null: it never does.
  std::shared_ptr<const SharedMemory> shared = nullptr;
};

/// A rank's connections to the others, as a table of functions: one thread at a time may call them. Blocks from one rank to another may
/// overtake each other where one is large.
struct MessageLink {
  int eventFd = -1;  ///< becomes readable when something happens at a link that is armed

  /// Starts sending to another rank; keeps `data` until it is sent. Returns whether that happened at once, so that no progress is needed.
  std::function<bool(JobRank to, const BlockHead& head, HeldBuffer data)> start;
  /// Progresses what is in flight; returns whether anything happened. Costs well under a microsecond when there is nothing to do.
  std::function<bool()> progress;
  /// To be called before waiting for `eventFd`: false if there is something to do first.
  std::function<bool()> arm;
  /// Forgets all that is in flight to and from a rank.
  std::function<void(JobRank rank)> drop;
  /// Drains what is in flight, for at most that time, and ends all connections.
  std::function<void(std::chrono::milliseconds longest)> leave;
};

/// The table of a class that has these functions, and `fd`; it lives as long as the table.
template <class Link>
MessageLink linkOf(const std::shared_ptr<Link>& link) {
  return {.eventFd = link->fd(),
          .start = [link](JobRank to, const BlockHead& head, HeldBuffer data) { return link->start(to, head, std::move(data)); },
          .progress = [link] { return link->progress(); },
          .arm = [link] { return link->arm(); },
          .drop = [link](JobRank rank) { link->drop(rank); },
          .leave = [link](std::chrono::milliseconds longest) { link->leave(longest); }};
}

/// How a rank connects with the others of its job.
struct LinkMaker {
  JobRank rank;
  int size = 1;
  std::string token{};         ///< the job's secret
  bool writesToPeers = false;  ///< it can use memory that processes of the same host share
  /// Throws Error naming what failed when the ranks do not meet within the deadline of their rendezvous.
  std::function<MessageLink(LinkEvents)> connect;
};

}  // namespace pw
