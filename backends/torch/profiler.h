#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "backends/messages/communicator.h"
#include "backends/torch/stage/stage.h"
#include "simulator/costs/profile.h"

namespace pw {

struct ProfileOptions {
  std::int64_t microbatch = 1;
  std::string loss = "cross_entropy";
  StageOptions stage;
  int warmup = 3;
  int samples = 15;
  std::chrono::milliseconds budget{20000};  ///< stops sampling (after 3 samples at least) when this is spent
};

/// Measures the whole model as one stage on this thread: the forward of each node between two clock readings; its backward, without weight
/// gradients that can wait, between two hooks of the autograd engine; and those afterwards one by one. Medians over warm samples, scaled so
/// that their sum is the median of the whole. Memory from the counting allocator: of the forward and the separate backwards in the samples,
/// of the whole backward once more. With a `group`, all its ranks compute in step (they contend, as in a run), and the link between ranks 0
/// and 1 is measured by its shortest round trips. `progress(done, all)` counts samples. Machine, threads and, of how it computes, all but
/// the precision are left to the caller. On a GPU (`options.stage.device`) times of nodes are those of the device alone: it is kept busy
/// while the host asks for a sample, so that it never waits for the host. The whole that they are scaled to is done as a run does it, by
/// CUDA graphs where it would (StageOptions::graphs).
[[nodiscard]] Profile measureProfile(const ModelGraph& graph, const ProfileOptions& options, Communicator* group,
                                     const std::function<void(int, int)>& progress);

}  // namespace pw
