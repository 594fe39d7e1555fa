#include "simulator/hang/recording.h"

#include <algorithm>

namespace pw::hang {

const RankDump* Dumps::of(JobRank rank) const {
  const auto found = std::ranges::lower_bound(dumps, rank, {}, &RankDump::rank);
  return found != dumps.end() && found->rank == rank ? &*found : nullptr;
}

std::size_t Dumps::sizeOf(std::size_t group) const {
  const std::vector<JobRank>& members = groups[group].ranks;
  return members.empty() ? static_cast<std::size_t>(ranks) : members.size();
}

JobRank Dumps::memberAt(std::size_t group, std::size_t place) const {
  const std::vector<JobRank>& members = groups[group].ranks;
  return members.empty() ? JobRank{static_cast<std::int32_t>(place)} : members[place];
}

std::optional<std::size_t> Dumps::placeOf(std::size_t group, JobRank rank) const {
  const std::vector<JobRank>& members = groups[group].ranks;
  if (members.empty()) return rank.value >= 0 && rank.value < ranks ? std::optional(rank.index()) : std::nullopt;
  const auto found = std::ranges::find(members, rank);
  return found != members.end() ? std::optional(static_cast<std::size_t>(found - members.begin())) : std::nullopt;
}

}  // namespace pw::hang
