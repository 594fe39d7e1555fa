#include "backends/cuda/nccl_ids.h"

#include <algorithm>
#include <utility>

#include "backends/messages/tags.h"

namespace pw {
namespace {

constexpr std::uint32_t kTag = kNcclIdTags.first;

}  // namespace

/// The id, whether it is a group's, and for each rank of the job whether it is a member.
std::size_t NcclIds::messageBytes() const { return sizeof(NcclId) + 1 + static_cast<std::size_t>(host_.size()); }

void NcclIds::give(const NcclMembers& members, const NcclId& id) {
  std::vector<std::byte> bytes(messageBytes());
  std::ranges::copy(id, bytes.begin());
  bytes[id.size()] = std::byte{members.collective};
  for (const JobRank rank : members.ranks) bytes[id.size() + 1 + rank.index()] = std::byte{1};
  for (const JobRank rank : members.ranks) {
    if (rank == host_.rank()) continue;
    Message& message = outgoing_.emplace_back(Message{bytes});
    message.request = host_.send(rank, kTag, {message.bytes.data(), message.bytes.size()});
  }
}

void NcclIds::want(const NcclMembers& members) {
  if (came_.contains(members)) return;
  wanted_.insert(members);
  expect(members.ranks.front());
}

void NcclIds::expect(JobRank from) {
  const auto [message, isNew] = incoming_.try_emplace(from, Message{std::vector<std::byte>(messageBytes())});
  if (isNew) message->second.request = host_.receive(from, kTag, {message->second.bytes.data(), message->second.bytes.size()});
}

std::optional<NcclId> NcclIds::take(const NcclMembers& members) {
  const auto id = came_.extract(members);
  return id ? std::optional(id.mapped()) : std::nullopt;
}

void NcclIds::keep(JobRank from, const std::vector<std::byte>& message) {
  NcclId id;
  std::copy_n(message.begin(), id.size(), id.begin());
  NcclMembers members{.collective = message[id.size()] != std::byte{0}, .ranks = {}};
  for (int r = 0; r < host_.size(); ++r) {
    if (message[id.size() + 1 + JobRank(r).index()] != std::byte{0}) members.ranks.emplace_back(r);
  }
  std::ranges::stable_partition(members.ranks, [&](JobRank rank) { return rank == from; });
  wanted_.erase(members);
  came_.emplace(std::move(members), id);
}

void NcclIds::advance() {
  std::erase_if(outgoing_, [this](const Message& message) {
    if (!host_.isDone(message.request).value_or(false)) return false;
    host_.wait(message.request);
    return true;
  });
  std::vector<JobRank> came;
  for (const auto& [from, message] : incoming_) {
    if (host_.isDone(message.request).value_or(false)) came.push_back(from);
  }
  for (const JobRank from : came) {
    const auto message = incoming_.extract(from);
    host_.wait(message.mapped().request);
    keep(from, message.mapped().bytes);
    if (std::ranges::any_of(wanted_, [from](const NcclMembers& members) { return members.ranks.front() == from; })) expect(from);
  }
}

}  // namespace pw
