#include "simulator/plan/setting.h"

#include "simulator/model/graph_facts.h"
#include "simulator/model/symbolic.h"
#include "simulator/partition/model_costs.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/step/compile.h"
#include "simulator/step/compiled_rows.h"

namespace pw {

Bytes targetBytes(const ModelGraph& graph, const Loss& loss, std::int64_t microbatch) {
  if (loss.kind == LossKind::Sum || loss.kind == LossKind::Output || graph.outputs.empty() || isLayerChain(graph)) return 0;
  const auto& output = graph.value(graph.outputs.front()).tensor;
  if (!output || output->sizes.empty()) return 0;
  TensorMeta targets = *output;
  if (loss.kind == LossKind::CrossEntropy) {
    targets.dtype = DType::Int64;
    targets.sizes.pop_back();
  }
  return knownBytes(targets, bindBatch(graph, microbatch)).value_or(Bytes{0});
}

CostTable costsOf(const PlanSetting& setting, const Partition& partition) {
  CostTable costs = setting.model != nullptr
                        ? setting.model->costTable(partition, setting.schedule.placement, setting.replicas)
                        : costTable(setting.graph, partition, setting.profile, setting.schedule.placement, setting.replicas);
  costs.stages.back().dataBytes += setting.targets;
  addOptimizerState(costs, stateCopies(setting.optimizer), setting.optimizerShards);
  requireSummable(costs, shapeOf(setting.schedule));
  return costs;
}

std::vector<Bytes> peaksOf(const PlanSetting& setting, const Partition& partition) {
  const CostTable costs = costsOf(setting, partition);
  return setting.compiled != nullptr ? setting.compiled->peaks(costs) : compile(setting.schedule, costs).peakBytes;
}

}  // namespace pw
