#pragma once

#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// Joins a model that was exported as one archive per stage: the outputs of a part become, in order, the inputs of the next; each border
/// becomes a split marker. Names that occur in several parts get the prefix `part<i>.`, i from 0. Throws UsageError when counts, types or
/// sizes at a border differ.
[[nodiscard]] ModelGraph joinGraphs(const std::vector<ModelGraph>& parts);

}  // namespace pw
