#pragma once

#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// Joins parts exported one archive per stage: outputs of a part become, in order, the inputs of the next one; each
/// border becomes a split marker. Names that occur in several parts get the prefix `part<i>.`, i from 0.
/// Throws UsageError when counts, types or sizes at a border differ.
[[nodiscard]] ModelGraph join(const std::vector<ModelGraph>& parts);

}  // namespace pw
