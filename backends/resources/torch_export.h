#pragma once

#include <string>
#include <vector>

#include "simulator/plan/plan.h"

namespace pw {

/// Writes the files that run the plan with torch.distributed.pipelining into a folder, which is created if missing: schedule.csv,
/// pipeline.json, run.py and stages.py. Returns sentences on what torch does differently. Throws as `torchPlan`, and Error where the folder
/// cannot be made or written.
[[nodiscard]] std::vector<std::string> writeTorchPlan(const Plan& plan, const ModelGraph& graph, const std::string& folder);

}  // namespace pw
