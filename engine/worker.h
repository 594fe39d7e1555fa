#pragma once

#include <chrono>

#include "backends/messages/communicator.h"
#include "backends/torch/backend.h"
#include "engine/gathering.h"
#include "engine/processes/launcher.h"
#include "engine/train_options.h"
#include "simulator/plan/plan.h"

namespace pw {

/// Trains this rank's stages of the plan, in its replica. Keeps no steps: `onStep` and `onGathered` see them. Throws Error naming rank,
/// step and action.
[[nodiscard]] RankLog trainRank(const ModelGraph& graph, const Plan& plan, const TrainOptions& options, Communicator& communicator,
                                const TorchBackend& torch);

/// Binds this process, and the threads it will start, to its share of the cores when the ranks of this host have a core or more each: else
/// the kernel may keep two busy ranks on one core for a while, and they compute in turn (step times up to 1.7 times as long went away with
/// this). Call before LibTorch is loaded.
void bindToCores(const RankEnvironment& environment);

/// Where this rank meets its job, from its environment.
[[nodiscard]] Rendezvous rendezvousOf(const RankEnvironment& environment, std::chrono::milliseconds deadline);

}  // namespace pw
