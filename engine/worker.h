#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "backends/communicator.h"
#include "backends/run_store.h"
#include "backends/torch_backend.h"
#include "engine/executor.h"
#include "engine/launcher.h"
#include "simulator/plan.h"

namespace pw {

struct TrainOptions {
  int steps = 1;
  bool verify = false;  ///< compare loss and gradients of the first step with one rank on the same microbatches
  StageOptions stage;
  std::chrono::milliseconds deadline{60000};
  std::function<void(int, double)> onLoss;  ///< called on the rank of the last stage after each step
};

/// How far a pipelined step was from the same step on one rank.
struct Verification {
  bool equal = true;
  double lossDifference = 0;
  double gradientDifference = 0;   ///< largest absolute
  std::string firstDifference;     ///< sentence; empty when equal
};

/// The steps of one rank's training.
struct RankLog {
  std::vector<StepLog> steps;
  Verification verification;
};

/// Trains this rank's stages of the plan. Throws Error naming rank, step and action.
[[nodiscard]] RankLog train(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                            const TorchBackend& torch);

/// All ranks' logs on rank 0 (index = rank), times on rank 0's clock; empty on other ranks. Clocks are compared by round trips and corrected
/// when they differ by more than a round trip can explain (Cristian, 1989): ranks of one host share a clock.
[[nodiscard]] std::vector<RankLog> gather(const RankLog& own, Communicator& communicator);

/// Binds this process, and the threads it will start, to its share of the cores when the ranks of this host have a core or more each: else the
/// kernel may keep two busy ranks on one core for a while, and they compute in turn (step times up to 1.7 times as long went away with this).
/// Call before LibTorch is loaded.
void bindToCores(const RankEnvironment& environment);

/// Connects this rank to its job by what its environment says.
[[nodiscard]] Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline);

/// The plan's model as one stage on one rank, same microbatches: what pipelined results are compared with.
[[nodiscard]] Plan singleRankPlan(const ModelGraph& graph, const Plan& plan);

}  // namespace pw
