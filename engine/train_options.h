#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/waits.h"
#include "backends/stages/synthetic_stage.h"
#include "backends/torch/stage/stage.h"
#include "engine/executor.h"
#include "engine/step_log.h"

namespace pw {

struct TrainOptions {
  int steps = 1;
  int firstStep = 0;    ///< of a resumed training
  bool verify = false;  ///< compare the first step with one rank on the same microbatches
  StageOptions stage;
  std::optional<SyntheticDevice> synthetic;  ///< use synthetic stages, which take as long as the plan says, instead of the model's
  ExecutorOptions executor;
  std::chrono::milliseconds deadline = kUsualWait;
  std::string resumeNote;                           ///< what of a resumed checkpoint is not used; reported once it has been read
  std::string save;                                 ///< checkpoint, written at the end and every `saveEvery` steps; see `checkpointPath`
  int keep = 0;                                     ///< how many checkpoints of the history are kept; 0: all
  int saveEvery = 0;                                ///< 0: at the end only
  std::function<void(int, const StepLog&)> onStep;  ///< called on every rank after each step
  std::function<void(int, std::vector<StepLog>)> onGathered;  ///< called on rank 0 after each step, with what all ranks saw of it
  LiveWriter* live = nullptr;                                 ///< told what is done while it is done
};

}  // namespace pw
