#include "backends/stages/batch_feed.h"

#include "simulator/plan/plan.h"

namespace pw {

bool needsBatch(const Plan& plan, Stage stage) {
  return stage.index() + 1 == plan.partition.stages.size() || !plan.partition.stages[stage.index()].modelInputs.empty();
}

}  // namespace pw
