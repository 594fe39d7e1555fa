#pragma once

#include "simulator/model/model_graph.h"
#include "simulator/plan/plan.h"
#include "simulator/report/prediction_report.h"

namespace pw {

/// What a step of the plan of this model processes. Of a job's stages neither samples nor FLOPs are known, of a layer table's no FLOPs.
[[nodiscard]] StepWork workOf(const Plan& plan, const ModelGraph& graph);
/// The same; reads the model where the plan says that it is. Tokens are known only where it still is there and the same.
[[nodiscard]] StepWork workOf(const Plan& plan);

}  // namespace pw
