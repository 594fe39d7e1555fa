#include "engine/own_stages.h"

#include <utility>

namespace pw {

StageOptions stageOptionsFor(const Plan& plan, const TrainOptions& options, Communicator& communicator) {
  StageOptions stage = options.stage;
  stage.replica = replicasOf(plan.schedule).replica(communicator.rank());
  // GPU operators are enqueued and done later; those of a backward are enqueued by a thread of LibTorch.
  if (stage.device == nullptr) stage.betweenOperators = [&communicator] { communicator.progress(); };
  return stage;
}

OwnStages::OwnStages(const ModelGraph& graph, const Plan& plan, const TrainOptions& train, const StageOptions& options,
                     Communicator& communicator, const TorchBackend& torch) {
  const Rank rank = replicasOf(plan.schedule).rank(communicator.rank());
  for (std::size_t s = 0; s < plan.schedule.placement.stages(); ++s) {
    if (!plan.schedule.placement.holds(rank, Stage(s))) continue;
    modules.push_back(train.synthetic ? makeSyntheticStage(plan, Stage(s), *train.synthetic, options.betweenOperators)
                                      : torch.makeTracedStage(graph, plan, Stage(s), options));
    stages[Stage(s)] = modules.back().get();
  }
}

std::vector<StatePiece> OwnStages::state() const {
  std::vector<StatePiece> pieces;
  for (const auto& [id, stage] : stages) {
    for (StatePiece& piece : stage->state()) pieces.push_back(std::move(piece));
  }
  return pieces;
}

}  // namespace pw
