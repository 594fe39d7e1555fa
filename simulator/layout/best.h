#pragma once

#include <optional>
#include <vector>

#include "simulator/layout/timed_layouts.h"

namespace pw {

/// The layout with the shortest predicted step.
struct BestLayout {
  std::vector<std::size_t> begins;  ///< as of `TimedLayouts`
  TimedLayouts::Times times;
  double layouts = 0;  ///< that Megatron could be given for this shape
  bool all = false;    ///< whether each was simulated, or excluded by its bound: none is shorter
};

/// Finds it, as Megatron posts its messages, among all that Megatron takes, those with empty stages included. Within `limits` (bytes, by
/// rank; empty: none) where any is: lower in what is over a limit, then in the step, then in the largest peak; ties: `start`, then the cut
/// with the most even work, then that with as many layers in each stage, then the first in the order of begins. Up to 200,000 layouts are
/// all looked at, unless that takes more than some seconds; of more, single begins and groups of neighbours are moved from each of these
/// three as long as that helps. The same input gives the same answer. Throws UsageError where the MTP layers fit in no stage that Megatron
/// lets them be in.
[[nodiscard]] BestLayout bestLayout(TimedLayouts& layouts, const LayoutShape& shape, const std::vector<Bytes>& limits = {},
                                    const std::optional<std::vector<std::size_t>>& start = std::nullopt);

}  // namespace pw
