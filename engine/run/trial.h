#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "backends/torch/backend.h"
#include "simulator/model/loss.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// The largest difference of one kind of result from the whole batch's, and where it was.
struct TrialDifference {
  double relative = 0;  ///< of the largest element of the same tensor over the whole batch; infinite where one is not a number
  std::string name;     ///< of that tensor; empty where nothing was compared or nothing differs
  bool equal = true;    ///< within rounding error

  bool operator==(const TrialDifference&) const = default;
};

/// A training step on a random batch cut into microbatches, compared with the same batch in one piece.
struct TrialStep {
  int microbatches = 1;
  double loss = 0;
  TrialDifference lossDifference, outputs, gradients, buffers;
  std::string failure;  ///< a sentence, where the model cannot run with such microbatches

  [[nodiscard]] bool sameResults() const { return failure.empty() && lossDifference.equal && outputs.equal && gradients.equal; }
  bool operator==(const TrialStep&) const = default;
};

struct Trial {
  std::string refused;  ///< why nothing was tried, a sentence; otherwise empty
  std::int64_t batch = 0;
  Loss loss;
  std::string lossCount;        ///< of `--loss-count`
  bool ignoredTargets = false;  ///< whether targets that the model's loss ignores were among the data
  std::vector<std::string> switchedOff,
      random;  ///< names of random operators: those that were switched off (dropout), and those that could not be, so that results differ
  std::vector<TrialStep> steps;  ///< 1, 2 and 4 microbatches

  [[nodiscard]] bool sameResults() const;
  [[nodiscard]] bool sameBuffers() const;
  bool operator==(const Trial&) const = default;
};

struct TrialOptions {
  Loss loss;
  std::string lossCount;  ///< of --loss-count; may be empty
  std::uint64_t seed = 0;
  std::chrono::milliseconds deadline{600000};
};

/// Trains one step in this process on one rank, in train mode with dropout switched off, with 1, 2 and 4 microbatches of one synthetic
/// batch of 4 samples (or 4 times the smallest batch that the model takes), each from the model's own state. Results are equal if they
/// differ by no more than the rounding of the narrowest floating type in the trace explains. Missing weights are drawn at random. Cost:
/// three training steps.
[[nodiscard]] Trial tryMicrobatches(const ModelGraph& graph, const TrialOptions& options, const TorchBackend& torch);

}  // namespace pw
