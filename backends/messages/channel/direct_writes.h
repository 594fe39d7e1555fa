#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "backends/messages/channel/link.h"
#include "backends/messages/channel/shared_memory.h"

namespace pw {

/// What ranks say to each other of a block that its sender is to write. Comes byte by byte as it is in memory; everything in it may be
/// wrong.
struct DirectMessage {
  enum class What : std::uint32_t {
    Ask = 1,  ///< sender: a block of so many bytes is there
    Write,    ///< receiver: write it to that offset
    Send,     ///< receiver: there is no shared memory left; send it
    Refuse,   ///< receiver: it is none of this job's
    Written,  ///< sender: it is there
  };
  std::uint64_t key = 0;  ///< as that of a block from `from`
  std::uint32_t from = 0;
  What what = What::Ask;
  BlockHead head;  ///< of the block
  std::uint64_t bytes = 0, offset = 0;
};

/// Large blocks between processes of one host: the sender copies them to memory of the receiver that both see. One copy in user space,
/// whose stores go past the caches, takes two thirds of the time in which the kernel copies from process to process (64 MB on a Zen core: 8
/// ms and 12 to 15). One thread at a time.
class DirectWrites {
 public:
  using Post = std::function<void(JobRank to, const DirectMessage& message)>;
  using Send = std::function<void(JobRank to, const BlockHead& head, HeldBuffer data)>;

  /// `send`: by the transport. `place`, `placed`, `lost` and `shared` of the events are used.
  DirectWrites(JobRank self, std::size_t ranks, const std::string& token, const LinkEvents& events, Post post, Send send);

  /// Where the others find memory of this rank.
  [[nodiscard]] SharedMemoryName name() const;
  /// That of another rank.
  void meet(JobRank rank, const SharedMemoryName& name);
  /// Whether a block of so many bytes goes this way.
  [[nodiscard]] bool takes(JobRank to, std::size_t bytes) const;
  void start(JobRank to, const BlockHead& head, HeldBuffer data);
  void handle(const DirectMessage& message);
  /// Memory for a block that now comes by the transport after all; nothing if it was not announced.
  [[nodiscard]] std::optional<HeldBuffer> announced(const BlockHead& head, std::size_t bytes);
  /// Copies a piece of what is to be written; returns whether there was any.
  bool write();
  [[nodiscard]] bool isWriting() const { return !writing_.empty(); }
  /// Nothing more is said to or heard from a rank.
  void drop(JobRank rank);

 private:
  struct BlockId {
    std::uint32_t rank = 0;  ///< the other
    BlockKind kind{};
    std::uint64_t number = 0, part = 0;
    auto operator<=>(const BlockId&) const = default;
  };
  struct Outgoing {
    BlockHead head;
    HeldBuffer data;
    std::byte* to = nullptr;  ///< null: not said yet
    std::size_t written = 0;
  };

  static BlockId idOf(std::uint32_t rank, const BlockHead& head) { return {rank, head.kind, head.number, head.part}; }
  void say(JobRank to, DirectMessage::What what, const BlockHead& head, std::uint64_t bytes = 0, std::uint64_t offset = 0);
  void handleAsk(const DirectMessage& message);
  void handleAnswer(const DirectMessage& message);

  JobRank self_;
  LinkEvents events_;
  Post post_;
  Send send_;
  std::vector<std::uint64_t> keysThere_, keysHere_;  ///< of messages to a rank, and from it
  std::vector<std::shared_ptr<const SharedMemoryView>> views_;
  std::map<BlockId, Outgoing> outgoing_;
  std::deque<BlockId> writing_;  ///< of `outgoing_`
  std::map<BlockId, HeldBuffer> incoming_;
  std::vector<HeldBuffer> abandoned_;  ///< a rank that was lost may still write to it
};

}  // namespace pw
