#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/run/settings.h"

namespace pw {

struct EvaluationResult {
  double loss = 0;  ///< mean over the samples
  std::int64_t samples = 0;
  std::vector<std::string> outputs;  ///< names
};

/// This rank's part of `run --eval`, which computes the mean loss of `steps` batches. Rank 0 writes the outputs file and returns the
/// result; other ranks return nothing. All ranks call it. Throws Error where the loss is not finite.
[[nodiscard]] std::optional<EvaluationResult> evaluateRank(const RunSettings& settings, const ModelGraph& graph, const Plan& plan,
                                                           const TrainOptions& training, Communicator& communicator,
                                                           const TorchBackend& torch);

}  // namespace pw
