#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/torch/backend.h"
#include "engine/executor.h"
#include "engine/gathering.h"
#include "engine/own_stages.h"
#include "engine/train_options.h"
#include "engine/training_files.h"
#include "engine/verify.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Names of one storage beside the first (tied parameters): the other name, and the first.
[[nodiscard]] std::map<std::string, std::string> aliasesOf(const ModelGraph& graph);

/// A rank's training, driven one step at a time; all ranks make the same calls.
class Training {
 public:
  /// Makes this rank's stages. All must outlive it, and stay where they are. Throws as `makeTracedStage`, and what the communicator throws.
  Training(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator, const TorchBackend& torch);
  Training(const Training&) = delete;
  Training& operator=(const Training&) = delete;
  ~Training() = default;

  /// The next step: its batch, where a feed gives it, then actions, sums and the update; calls `onStep` and `onGathered` of the options.
  /// Returns whether the training can continue: numbers that are not finite end it, unless they are skipped. Throws UsageError for a batch
  /// that does not fit or differs between ranks, the same on all of them and before anything is computed; Error naming rank, step and
  /// action.
  [[nodiscard]] bool step();
  /// That comparison of the next step's batches alone, so that a caller can offer another one; `step` does not repeat it.
  void agree();
  /// The number of the next step.
  [[nodiscard]] int nextStep() const { return next_; }
  /// See StageModule: for learning rates that come from outside.
  void setOptimizer(const OptimizerSpec& optimizer);
  /// Writes the checkpoint of `TrainOptions::save`, or another. Throws as `saveCheckpoint`.
  void save() { save(checkpointPath(options_.save, next_)); }
  void save(const std::string& path);
  /// What this rank holds of the training's state; valid until the next call.
  [[nodiscard]] std::vector<StatePiece> state() const { return own_.state(); }
  /// What a rank knows beside its steps, so far.
  [[nodiscard]] RankLog log() const;

 private:
  const ModelGraph& graph_;
  const Plan& plan_;
  TrainOptions options_;
  Communicator& communicator_;
  const TorchBackend& torch_;
  RankLog log_;
  std::optional<Verifier> verifier_;  // until the first step is done
  StageOptions stageOptions_;
  OwnStages own_;
  Executor executor_;
  StepGatherer gatherer_;
  CheckpointHistory history_;
  OptimizerSpec optimizer_;
  bool needsBatch_ = false;
  bool agreed_ = false;  // on the next step's batch
  int next_ = 0;
  int updates_ = 0;  // of the parameters
};

}  // namespace pw
