#pragma once

#include <map>
#include <memory>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/stages/stage_module.h"
#include "backends/torch/backend.h"
#include "engine/train_options.h"
#include "simulator/plan/plan.h"

namespace pw {

/// The options of this rank's stages: its replica, and what happens between operators.
[[nodiscard]] StageOptions stageOptionsFor(const Plan& plan, const TrainOptions& options, Communicator& communicator);

/// The stages of this rank, in either direction of a bidirectional placement.
struct OwnStages {
  std::vector<std::unique_ptr<StageModule>> modules;
  std::map<Stage, StageModule*> stages;

  /// Throws as `makeTracedStage`.
  OwnStages(const ModelGraph& graph, const Plan& plan, const TrainOptions& train, const StageOptions& options, Communicator& communicator,
            const TorchBackend& torch);

  /// What a checkpoint holds of them; valid until the next call of a stage.
  [[nodiscard]] std::vector<StatePiece> state() const;
};

}  // namespace pw
