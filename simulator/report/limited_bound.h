#pragma once

#include <span>

#include "simulator/report/lower_bound.h"

namespace pw {

/// What each rank may have begun and not finished; empty: no limit.
struct RankLimits {
  std::span<const int> live;     ///< (stage, microbatch) pairs
  std::span<const Bytes> bytes;  ///< of memory; of a rank 0: no limit
};

/// The part of `lowerBounds` that follows from the limits and from a microbatch's path through all stages and back; 0 where neighbouring
/// stages exchange no messages. The backwards are all `whole`, or all split; one replica of each stage; no slots of their own duration.
[[nodiscard]] LowerBounds limitedBounds(const Schedule& schedule, const CostTable& costs, bool whole, const RankLimits& limits);

}  // namespace pw
