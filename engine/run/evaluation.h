#pragma once

#include "app/cli/run_options.h"

namespace pw::cli {

/// This rank's part of `run --eval`: the mean loss of `steps` batches, and on rank 0 the outputs file and what is printed. All ranks call
/// it.
void evaluateRank(const RunOptions& options, const ModelGraph& graph, const Plan& plan, TrainOptions training, Communicator& communicator,
                  const TorchBackend& torch);

}  // namespace pw::cli
