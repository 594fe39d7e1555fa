#include "backends/messages/channel/direct_writes.h"

#include <algorithm>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "backends/messages/channel/block_memory.h"
#include "backends/messages/channel/wire.h"
#include "backends/messages/transport.h"

namespace pw {
namespace {

constexpr std::size_t kPiece = 4 << 20;  ///< [bytes] copied at a time: less than a millisecond

/// As memcpy; the stores go past the caches, which otherwise first read what is overwritten. `to` is a multiple of 64.
void copyPastCaches(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t done = 0;
#ifdef __SSE2__
  constexpr std::size_t kLine = 64, kAhead = 512;  // [bytes]
  for (; done + kLine <= bytes; done += kLine) {
    _mm_prefetch(reinterpret_cast<const char*>(from) + done + kAhead, _MM_HINT_NTA);
    for (std::size_t i = done; i < done + kLine; i += sizeof(__m128i))
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + i), _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
  _mm_sfence();
#endif
  std::memcpy(to + done, from + done, bytes - done);
}

}  // namespace

DirectWrites::DirectWrites(JobRank self, std::size_t ranks, const std::string& token, const LinkEvents& events, Post post, Send send)
    : self_(self), events_(events), post_(std::move(post)), send_(std::move(send)), views_(ranks) {
  for (std::size_t r = 0; r < ranks; ++r) {
    keysThere_.push_back(blockKey(token, self, JobRank(static_cast<int>(r))));
    keysHere_.push_back(blockKey(token, JobRank(static_cast<int>(r)), self));
  }
}

SharedMemoryName DirectWrites::name() const { return events_.shared ? events_.shared->name() : SharedMemoryName(); }

void DirectWrites::meet(JobRank rank, const SharedMemoryName& name) {
  if (events_.shared && !views_[rank.index()]) views_[rank.index()] = SharedMemoryView::open(name);
}

bool DirectWrites::takes(JobRank to, std::size_t bytes) const { return bytes >= SharedMemory::kUnit && views_[to.index()] != nullptr; }

void DirectWrites::say(JobRank to, DirectMessage::What what, const BlockHead& head, std::uint64_t bytes, std::uint64_t offset) {
  post_(to, {.key = keysThere_[to.index()],
             .from = static_cast<std::uint32_t>(self_.value),
             .what = what,
             .head = head,
             .bytes = bytes,
             .offset = offset});
}

void DirectWrites::start(JobRank to, const BlockHead& head, HeldBuffer data) {
  const std::size_t bytes = data.buffer.bytes;
  outgoing_.insert_or_assign(idOf(static_cast<std::uint32_t>(to.value), head), Outgoing{head, std::move(data)});
  say(to, DirectMessage::What::Ask, head, bytes);
}

void DirectWrites::handle(const DirectMessage& message) {
  if (message.from >= keysHere_.size() || message.from == static_cast<std::uint32_t>(self_.value) || message.key != keysHere_[message.from])
    return;
  switch (message.what) {
    case DirectMessage::What::Ask: return handleAsk(message);
    case DirectMessage::What::Write:
    case DirectMessage::What::Send:
    case DirectMessage::What::Refuse: return handleAnswer(message);
    case DirectMessage::What::Written: {
      auto block = incoming_.extract(idOf(message.from, message.head));
      if (!block.empty()) events_.placed(message.head, std::move(block.mapped()));
      return;
    }
  }
}

void DirectWrites::handleAsk(const DirectMessage& message) {
  const JobRank from(static_cast<int>(message.from));
  if (message.head.from != message.from) return;
  const HeldBuffer memory = events_.place(message.head, message.bytes);
  if (memory.owner == nullptr) return say(from, DirectMessage::What::Refuse, message.head);
  incoming_.insert_or_assign(idOf(message.from, message.head), memory);
  const auto offset = events_.shared ? events_.shared->offsetOf(memory.buffer.data) : std::nullopt;
  offset ? say(from, DirectMessage::What::Write, message.head, message.bytes, *offset) : say(from, DirectMessage::What::Send, message.head);
}

void DirectWrites::handleAnswer(const DirectMessage& message) {
  const JobRank from(static_cast<int>(message.from));
  const BlockId id = idOf(message.from, message.head);
  const auto found = outgoing_.find(id);
  if (found == outgoing_.end() || found->second.to != nullptr) return;
  Outgoing& block = found->second;
  if (message.what == DirectMessage::What::Send) {
    send_(from, block.head, std::move(block.data));
    outgoing_.erase(found);
    return;
  }
  const bool isAligned = message.offset % kPartAlignment == 0;  // as memory for parts is, and streaming stores need
  if (message.what == DirectMessage::What::Write && isAligned) block.to = views_[from.index()]->at(message.offset, block.data.buffer.bytes);
  if (block.to != nullptr) {
    writing_.push_back(id);
  } else {
    outgoing_.erase(found);
    events_.lost(from, lostSentence(from));
  }
}

std::optional<HeldBuffer> DirectWrites::announced(const BlockHead& head, std::size_t bytes) {
  const auto found = incoming_.find(idOf(head.from, head));
  if (found == incoming_.end() || found->second.buffer.bytes != bytes || head.from >= keysHere_.size() || head.key != keysHere_[head.from])
    return std::nullopt;
  HeldBuffer memory = std::move(found->second);
  incoming_.erase(found);
  return memory;
}

bool DirectWrites::write() {
  if (writing_.empty()) return false;
  const BlockId id = writing_.front();
  Outgoing& block = outgoing_.at(id);
  const Buffer data = block.data.buffer;
  const std::size_t bytes = std::min(kPiece, data.bytes - block.written);
  copyPastCaches(block.to + block.written, data.data + block.written, bytes);
  block.written += bytes;
  writing_.pop_front();
  if (block.written < data.bytes) {  // others have their turn
    writing_.push_back(id);
    return true;
  }
  const BlockHead head = block.head;
  outgoing_.erase(id);
  say(JobRank(static_cast<int>(id.rank)), DirectMessage::What::Written, head);
  return true;
}

void DirectWrites::drop(JobRank rank) {
  const auto isIts = [&](const BlockId& id) { return id.rank == static_cast<std::uint32_t>(rank.value); };
  std::erase_if(writing_, isIts);
  std::erase_if(outgoing_, [&](const auto& block) { return isIts(block.first); });
  for (auto& [id, memory] : incoming_) {
    if (isIts(id)) abandoned_.push_back(std::move(memory));
  }
  std::erase_if(incoming_, [&](const auto& block) { return isIts(block.first); });
}

}  // namespace pw
