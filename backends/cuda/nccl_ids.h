#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "backends/messages/communicator.h"

namespace pw {

/// NCCL's `ncclUniqueId`.
using NcclId = std::array<std::byte, 128>;

/// The ranks that a communicator of NCCL's joins, by their place in it: a sender and its receiver, or the group of a collective, ascending.
/// The first makes the unique id by which they find each other.
struct NcclMembers {
  bool collective = false;
  std::vector<JobRank> ranks;

  auto operator<=>(const NcclMembers&) const = default;
};

/// Sends unique ids from first ranks to the others over the host's transport, with `kNcclIdTags`. Each message names its members, as ranks
/// may need the ids of one first rank in a different order from the one it sends them in. A receive is open only while an id is needed.
/// Nothing blocks; for one thread.
class NcclIds {
 public:
  explicit NcclIds(Communicator& host) : host_(host) {}

  /// Sends the id to all members but the first, which is this rank.
  void give(const NcclMembers& members, const NcclId& id);
  /// Requests the id; `take` returns it once it has arrived.
  void want(const NcclMembers& members);
  [[nodiscard]] std::optional<NcclId> take(const NcclMembers& members);
  /// Processes arrived messages. Throws Error when the job fails.
  void advance();

 private:
  struct Message {
    std::vector<std::byte> bytes;
    Communicator::Request request = 0;
  };
  [[nodiscard]] std::size_t messageBytes() const;
  void expect(JobRank from);
  void keep(JobRank from, const std::vector<std::byte>& message);

  Communicator& host_;
  std::list<Message> outgoing_;
  std::map<JobRank, Message> incoming_;  ///< by first rank: the next id
  std::set<NcclMembers> wanted_;
  std::map<NcclMembers, NcclId> came_;
};

}  // namespace pw
