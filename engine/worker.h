#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "backends/checkpoints/outputs.h"
#include "backends/messages/communicator.h"
#include "backends/stages/synthetic_stage.h"
#include "backends/store/run_store.h"
#include "backends/torch/backend.h"
#include "engine/clock.h"
#include "engine/executor.h"
#include "engine/launcher.h"
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
  LiveWriter* live = nullptr;                       ///< receives live progress
};

/// The steps of one rank's training.
struct RankLog {
  std::vector<StepLog> steps;
  Verification verification;
  Bytes residentPeak = 0;            ///< of the process
  Ns startToFirstAction = 0;         ///< from the start of the process
  std::vector<ClockReading> clocks;  ///< at the start; on rank 0 only
  std::optional<double> lossScale;   ///< after the last step, where float16 needs one; the same on all ranks
};

/// Trains this rank's stages of the plan, in its replica. Throws Error naming rank, step and action.
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

/// All ranks' logs on rank 0 (index = rank), times on rank 0's clock by comparisons before and after the training (`compareClocks`); empty
/// on other ranks.
[[nodiscard]] std::vector<RankLog> gather(const RankLog& own, Communicator& communicator);

/// Binds this process, and the threads it will start, to its share of the cores if every rank of this host has at least one: otherwise the
/// kernel may keep two busy ranks on one core for a while, so that they take turns (without this, step times were up to 1.7 times as long).
/// Call before LibTorch is loaded.
void bindToCores(const RankEnvironment& environment);

/// Where this rank meets its job, from its environment.
[[nodiscard]] Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline);

}  // namespace pw
