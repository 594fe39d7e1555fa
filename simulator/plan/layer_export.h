#pragma once

#include "simulator/costs/layer_table.h"
#include "simulator/plan/plan.h"

namespace pw {

/// A profiled model as a layer table: a layer for the operators between two split points, with the names of the splits (`splitPoints`; the
/// first is called `start`), the profile's times, the parameters that it is the first to read, and what its operators save. Without a
/// measured weight part, half of a backward is that. The loss is in the last layer. `sent` is the measured link's latency and transfer
/// time; of an estimated profile it is left to `--cluster`. Planned at the same splits, the table's step takes as long as the model's where
/// values go to the next stage only and their gradients come back. Not in a table: buffers, gradients, what is held while an operator runs,
/// that a parameter is shared.
/// Throws UsageError where plan and graph do not belong together, or the plan has no profile or is of a layer table. Cost: linear.
[[nodiscard]] LayerTable layersOf(const Plan& plan, const ModelGraph& graph);

}  // namespace pw
