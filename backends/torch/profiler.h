#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "backends/messages/communicator.h"
#include "backends/torch/stage/stage.h"
#include "simulator/costs/profile.h"
#include "simulator/model/loss.h"

namespace pw {

struct ProfileOptions {
  std::int64_t microbatch = 1;
  Loss loss;
  StageOptions stage;
  int warmup = 3;
  int samples = 15;
  std::chrono::milliseconds budget{20000};  ///< stops sampling (after at least 3 samples) when this time is used up
};

/// Measures the whole model as one stage on this thread: the forward of each node between two clock readings; its backward, without
/// deferrable weight gradients, between two hooks of the autograd engine; and those afterwards one by one. Medians over warm samples,
/// scaled so that their sum is the median of the full-model run. Memory comes from the counting allocator: of the forward and the separate
/// backwards in the samples, of the full backward in an extra run. With a `group`, all its ranks compute at the same time (they compete for
/// resources, as in a run), and the link between ranks 0 and 1 is measured by its shortest round trips. `progress(done, all)` counts
/// samples. Machine, threads and the `Computing` fields other than the precision are set by the caller. On a GPU (`options.stage.device`)
/// times of nodes are those of the device only: it is kept busy while the host enqueues a sample, so that it never waits for the host. The
/// full-model run that they are scaled to is done as in a real run, with CUDA graphs where that would use them (StageOptions::graphs).
[[nodiscard]] Profile measureProfile(const ModelGraph& graph, const ProfileOptions& options, Communicator* group,
                                     const std::function<void(int, int)>& progress);

}  // namespace pw
