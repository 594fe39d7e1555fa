#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "simulator/step/simulate.h"

namespace pw::gui {

/// Records a completed run of a plan: a step for each factor, whose forwards of stage 1 took that many times as long as planned.
inline RunId storeRun(const std::string& path, const Plan& plan, const std::vector<double>& factors,
                      const std::string& startedAt = "2024-11-22T14:03:00Z") {
  RunRecord run;
  run.state = RunState::Completed;
  run.startedAt = startedAt;
  run.transport = Transport::Gloo;
  run.plan = plan;
  run.predicted = simulate(plan.schedule, plan.costs);
  for (const double factor : factors) {
    CostTable costs = plan.costs;
    costs.stages[1].forward = Ns(std::llround(factor * static_cast<double>(costs.stages[1].forward)));
    run.steps.push_back({static_cast<int>(run.steps.size()), 2.5, simulate(plan.schedule, costs)});
  }
  return RunStore(path, RunStore::Mode::ReadWrite).add(run);
}

}  // namespace pw::gui
