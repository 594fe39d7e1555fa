#include "backends/messages/channel/in_memory_link.h"

#include <cassert>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

#include "backends/messages/channel/waker.h"
#include "backends/messages/channel/wire.h"
#include "backends/messages/transport.h"

namespace pw {
namespace {

struct Block {
  BlockHead head;
  HeldBuffer data;
  JobRank from;
};

/// What waits for one rank.
struct Mailbox {
  std::mutex mutex;
  std::deque<Block> blocks;
  std::vector<JobRank> left;  ///< ranks that left, not yet told
  bool isClosed = false;      ///< this rank left: nothing is delivered any more
  Waker waker;
};

struct Exchange {
  std::vector<std::unique_ptr<Mailbox>> mailboxes;
};

class InMemoryLink {
 public:
  InMemoryLink(std::shared_ptr<Exchange> exchange, JobRank rank, LinkEvents events)
      : exchange_(std::move(exchange)), rank_(rank), events_(std::move(events)) {}
  ~InMemoryLink() { leave(std::chrono::milliseconds(0)); }
  InMemoryLink(const InMemoryLink&) = delete;
  InMemoryLink& operator=(const InMemoryLink&) = delete;

  [[nodiscard]] int fd() { return mailboxOf(rank_).waker.fd(); }

  bool start(JobRank to, const BlockHead& head, HeldBuffer data) {
    assert(to != rank_);
    Mailbox& mailbox = mailboxOf(to);
    {
      const std::lock_guard lock(mailbox.mutex);
      if (mailbox.isClosed) return true;
      mailbox.blocks.push_back({head, std::move(data), rank_});
    }
    mailbox.waker.wake();
    return true;
  }

  bool progress() {
    Mailbox& own = mailboxOf(rank_);
    std::deque<Block> blocks;
    std::vector<JobRank> left;
    {
      const std::lock_guard lock(own.mutex);
      blocks.swap(own.blocks);
      left.swap(own.left);
    }
    for (Block& block : blocks) take(block);
    for (const JobRank rank : left) events_.lost(rank, lostSentence(rank));
    return !blocks.empty() || !left.empty();
  }

  bool arm() {
    Mailbox& own = mailboxOf(rank_);
    own.waker.clear();
    const std::lock_guard lock(own.mutex);
    return own.blocks.empty() && own.left.empty();
  }

  void drop(JobRank rank) {
    Mailbox& own = mailboxOf(rank_);
    const std::lock_guard lock(own.mutex);
    std::erase_if(own.blocks, [&](const Block& block) { return block.from == rank; });
  }

  void leave(std::chrono::milliseconds /*longest*/) {
    {
      Mailbox& own = mailboxOf(rank_);
      const std::lock_guard lock(own.mutex);
      if (std::exchange(own.isClosed, true)) return;
      own.blocks.clear();
    }
    for (const auto& mailbox : exchange_->mailboxes) {
      const std::lock_guard lock(mailbox->mutex);
      mailbox->left.push_back(rank_);
      mailbox->waker.wake();
    }
  }

 private:
  Mailbox& mailboxOf(JobRank rank) { return *exchange_->mailboxes[rank.index()]; }

  void take(Block& block) {
    const std::span<const std::byte> data(block.data.buffer.data, block.data.buffer.bytes);
    if (data.size() < kInlinePart) return events_.arrived(block.head, data);
    const HeldBuffer memory = events_.place(block.head, data.size());
    if (memory.owner == nullptr) return;
    std::memcpy(memory.buffer.data, data.data(), data.size());
    block.data = {};
    events_.placed(block.head, memory);
  }

  std::shared_ptr<Exchange> exchange_;
  JobRank rank_;
  LinkEvents events_;
};

}  // namespace

std::vector<LinkMaker> inMemoryLinks(int ranks) {
  assert(ranks >= 1);
  const auto exchange = std::make_shared<Exchange>();
  std::vector<LinkMaker> makers;
  for (int r = 0; r < ranks; ++r) exchange->mailboxes.push_back(std::make_unique<Mailbox>());
  for (int r = 0; r < ranks; ++r) {
    makers.push_back({.rank = JobRank(r), .size = ranks, .token = "", .connect = [exchange, r](LinkEvents events) {
                        return linkOf(std::make_shared<InMemoryLink>(exchange, JobRank(r), std::move(events)));
                      }});
  }
  return makers;
}

}  // namespace pw
