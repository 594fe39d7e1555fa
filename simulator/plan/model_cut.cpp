#include "simulator/plan/model_cut.h"

#include <algorithm>

namespace pw {

std::optional<ModelCut> cutOf(const Partition& partition, const std::optional<ReplicaCuts>& cuts) {
  if (partition.stages.empty()) return std::nullopt;
  ModelCut cut{{}, {beginsOf(partition)}};
  if (cuts) {
    cut.begins.clear();
    for (const ReplicaCut& replica : cuts->replicas) cut.begins.push_back(beginsOf(replica.partition));
  }
  if (std::ranges::all_of(cut.begins, [&](const auto& begins) { return begins == cut.begins.front(); })) cut.begins.resize(1);
  return cut;
}

std::optional<ModelCut> cutOf(const Plan& plan) {
  std::optional<ModelCut> cut = cutOf(plan.partition, plan.cuts);
  if (cut) cut->model = plan.modelName;
  return cut;
}

Splits splitsOf(const std::optional<ModelCut>& a, const std::optional<ModelCut>& b) {
  if (!a || !b) return Splits::Same;
  const bool areTwoModels = !a->model.empty() && !b->model.empty() && a->model != b->model;
  return !areTwoModels && a->begins == b->begins ? Splits::Same : Splits::Other;
}

}  // namespace pw
