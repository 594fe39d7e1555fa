#include "simulator/hang/recording.h"

#include <algorithm>

namespace pw::hang {

const RankDump* Dumps::of(JobRank rank) const {
  const auto found = std::ranges::lower_bound(dumps, rank, {}, &RankDump::rank);
  return found != dumps.end() && found->rank == rank ? &*found : nullptr;
}

}  // namespace pw::hang
