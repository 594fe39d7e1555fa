#pragma once

#include <string>
#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/plan/plan.h"

namespace pw {

/// A plan as the script `resources/torch_pipeline.py` (with `torch_stages.py`) takes it, to run with torch.distributed.pipelining.
struct TorchPlan {
  std::string schedule;            ///< schedule.csv: compute actions in torch's notation; torch adds sends and receives
  std::string settings;            ///< pipeline.json: model, nodes before which it is cut, placement, shapes, loss, shared parameters
  std::vector<std::string> notes;  ///< sentences: what torch does differently from the plan, or not at all

  bool operator==(const TorchPlan&) const = default;
};

/// Throws UsageError with the reason for a plan that torch cannot run: two replicas of each stage (bidirectional), a model in several
/// archives, a stage without tensors of its own, an autocast region, a value that several stages receive, one that passes stages by where
/// ranks have several, or a plan that was not made for this graph. Cost: linear.
[[nodiscard]] TorchPlan torchPlan(const Plan& plan, const ModelGraph& graph);

}  // namespace pw
