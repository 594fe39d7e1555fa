#pragma once

#include "simulator/model/model_graph.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Throws UsageError, naming what does not fit, when the plan was not made for this graph or was changed so that it no longer is a cut of
/// it: it has another fingerprint or number of nodes; or the inputs, parameters, buffers and constants of a stage, the values sent
/// between stages, which of them get a gradient back, or the parameters that stages share are not those that their operators need. Sizes
/// are not compared. Without a fingerprint the operators are not checked. Cost: linear in the graph.
void requireFits(const Plan& plan, const ModelGraph& graph);

}  // namespace pw
