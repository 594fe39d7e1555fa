#include "simulator/plan/setting.h"

#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/step/compile.h"
#include "simulator/step/compiled_rows.h"

namespace pw {

CostTable costsOf(const PlanSetting& setting, const Partition& partition) {
  CostTable costs = setting.model != nullptr
                        ? setting.model->costTable(partition, setting.schedule.placement, setting.replicas)
                        : costTable(setting.graph, partition, setting.profile, setting.schedule.placement, setting.replicas);
  addOptimizerState(costs, stateCopies(setting.optimizer), setting.optimizerShards);
  requireSummable(costs, shapeOf(setting.schedule));
  return costs;
}

std::vector<Bytes> peaksOf(const PlanSetting& setting, const Partition& partition) {
  const CostTable costs = costsOf(setting, partition);
  return setting.compiled != nullptr ? setting.compiled->peaks(costs) : compile(setting.schedule, costs).peakBytes;
}

}  // namespace pw
