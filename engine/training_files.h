#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "backends/checkpoints/optimizer_layout.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// The file name that `--save` stands for after a number of steps, which replaces `{step}`.
[[nodiscard]] std::string checkpointPath(const std::string& pattern, int steps);
[[nodiscard]] bool isHistory(const std::string& pattern);

/// The checkpoints that a training has written, for `--keep`.
class CheckpointHistory {
 public:
  /// `keep`: how many stay; 0: all.
  explicit CheckpointHistory(int keep) : keep_(keep) {}
  /// Called when a checkpoint is complete on disk: removes the oldest ones beyond the limit. One that cannot be removed stays, without
  /// failure.
  void add(const std::string& path);

 private:
  int keep_;
  std::deque<std::string> written_;
};

/// Where a resumed training continues.
struct Resumption {
  int firstStep = 0;
  int updates = 0;  ///< fewer than `firstStep` where gradients were not finite
  std::optional<double> lossScale;
  int goodSteps = 0;  ///< since the loss scale changed
  std::string note;   ///< what of the checkpoint is not used or missing; a sentence without its full stop, or empty
};

/// The seed of the training that wrote a checkpoint; nothing where the file does not say. Throws UsageError for a file that cannot be read.
[[nodiscard]] std::optional<std::uint64_t> seedIn(const std::string& path);
/// As numbers of a checkpoint, which are doubles: `seed`, and `seed_rest` where that is not all of it.
void addSeed(std::map<std::string, double>& numbers, std::uint64_t seed);

/// Reads what a checkpoint says about its training. Throws UsageError where its optimizer's state is not that of `update` (other kind, or
/// momentum in one alone), unless `resetOptimizer`: then, and of a checkpoint of weights alone, the training begins at step 0.
[[nodiscard]] Resumption resumptionOf(const std::string& path, const OptimizerSpec& update, bool resetOptimizer);

}  // namespace pw
