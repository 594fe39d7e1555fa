#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/checkpoints/outputs.h"
#include "backends/messages/communicator.h"
#include "backends/stages/synthetic_stage.h"
#include "backends/torch/backend.h"
#include "engine/executor.h"
#include "engine/gathering.h"
#include "engine/processes/launcher.h"
#include "engine/verify.h"
#include "simulator/plan/plan.h"

namespace pw {

struct TrainOptions {
  int steps = 1;
  int firstStep = 0;    ///< of a resumed training
  bool verify = false;  ///< compare the first step with one rank on the same microbatches
  StageOptions stage;
  std::optional<SyntheticDevice> synthetic;  ///< use synthetic stages, which take as long as the plan says, instead of the model's
  ExecutorOptions executor;
  std::chrono::milliseconds deadline{60000};
  std::string resumeNote;                           ///< what of a resumed checkpoint is not used; reported once it has been read
  std::string save;                                 ///< checkpoint, written at the end and every `saveEvery` steps; see `checkpointPath`
  int keep = 0;                                     ///< how many checkpoints of the history are kept; 0: all
  int saveEvery = 0;                                ///< 0: at the end only
  std::function<void(int, const StepLog&)> onStep;  ///< called on every rank after each step
  std::function<void(int, std::vector<StepLog>)> onGathered;  ///< called on rank 0 after each step, with what all ranks saw of it
  LiveWriter* live = nullptr;                                 ///< told what is done while it is done
};

/// Trains this rank's stages of the plan, in its replica. Keeps no steps: `onStep` and `onGathered` see them. Throws Error naming rank,
/// step and action.
[[nodiscard]] RankLog trainRank(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                                const TorchBackend& torch);

/// An evaluation step's loss, on all ranks, and on rank 0 the outputs of all microbatches, which `kept` keeps.
struct Evaluation {
  double loss = 0;
  std::vector<ModelOutput> outputs;
  std::vector<HeldBuffer> kept;
};

/// One step of forwards only.
[[nodiscard]] Evaluation evaluate(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                                  const TorchBackend& torch);

/// Binds this process, and the threads it will start, to its share of the cores when the ranks of this host have a core or more each: else
/// the kernel may keep two busy ranks on one core for a while, and they compute in turn (step times up to 1.7 times as long went away with
/// this). Call before LibTorch is loaded.
void bindToCores(const RankEnvironment& environment);

/// Where this rank meets its job, from its environment.
[[nodiscard]] Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline);

}  // namespace pw
