#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "backends/checkpoints/optimizer_layout.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// The file that `--save` means after so many steps: `{step}` in it is that number.
[[nodiscard]] std::string checkpointPath(const std::string& pattern, int steps);
[[nodiscard]] bool isHistory(const std::string& pattern);

/// The checkpoints that a training has written, for `--keep`.
class CheckpointHistory {
 public:
  /// `keep`: how many stay; 0: all.
  explicit CheckpointHistory(int keep) : keep_(keep) {}
  /// A checkpoint is whole on the disk: removes the oldest of this training's that are now too many. One that cannot be removed stays; no
  /// failure.
  void add(const std::string& path);

 private:
  int keep_;
  std::deque<std::string> written_;
};

/// Where a training goes on that is resumed.
struct Resumption {
  int firstStep = 0;
  std::optional<double> lossScale;
  std::string note;  ///< what of the checkpoint is not used, or is not there; a sentence without its end, or empty
};

/// Reads what a checkpoint says about its training. Throws UsageError where its optimizer's state is not that of `update` (other kind, or
/// momentum in one alone), unless `resetOptimizer`: then, and of a checkpoint of weights alone, the training begins at step 0.
[[nodiscard]] Resumption resumptionOf(const std::string& path, const OptimizerSpec& update, bool resetOptimizer);

}  // namespace pw
