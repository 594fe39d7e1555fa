#pragma once

#include <vector>

#include "simulator/job/measured.h"
#include "simulator/trace/reductions.h"

namespace pw {

/// Of a step of a trace of so many ranks, data-parallel replicas and ranks of a tensor-parallel group, and of what it names besides its
/// actions.
[[nodiscard]] ReductionGroups reductionGroups(const std::vector<NamedSpan>& operations, int ranks, int replicas, int tensor);

}  // namespace pw
