#include "engine/remote/post.h"

#include <utility>

#include "backends/host/packed.h"
#include "schedules/error.h"

namespace pw {

Post::Post(JobRank self, std::size_t workers, std::uint64_t token, Send send) : self_(self), token_(token), send_(std::move(send)) {
  for (std::size_t i = 0; i < workers; ++i) lines_.push_back(std::make_unique<Line>());
}

bool Post::send(JobRank to, MessageKind kind, std::string_view body, std::vector<HeldBuffer> parts) {
  Line& to_ = line(to);
  if (to_.lost) return false;
  const std::lock_guard lock(to_.mutex);
  Packer head;
  head.reserve(body.size() + 2 * sizeof(std::uint64_t) + 1);
  head.add(token_);
  head.add(++to_.sent);
  head.add(static_cast<std::uint8_t>(kind));
  head.addRaw(body);
  send_(to, {head.finish(), std::move(parts)});
  return true;
}

std::optional<Post::Letter> Post::open(JobRank from, const ChannelMessage& message) {
  Unpacker head(message.head);
  const auto token = head.next<std::uint64_t>(), number = head.next<std::uint64_t>();
  const auto kind = head.within<std::uint8_t>(0, static_cast<std::uint8_t>(MessageKind::Lost));
  if (!head.isSound() || token != token_) throw Error("a message is damaged, or of another job");
  Line& from_ = line(from);
  if (number <= from_.received) return std::nullopt;
  from_.received = number;
  return Letter{static_cast<MessageKind>(kind), head.raw(head.left())};
}

bool Post::lose(JobRank worker) { return !line(worker).lost.exchange(true); }
bool Post::isLost(JobRank worker) const { return line(worker).lost; }

}  // namespace pw
