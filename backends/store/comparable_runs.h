#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/store/run_store.h"
#include "simulator/history/gate.h"

namespace pw {

/// The first thing in which two runs differ that makes their times differ (`schedule: 1f1b and gpipe`): model, schedule, splits,
/// microbatches, replicas, transport or how they computed; nothing where they can be compared. The machine is not compared.
[[nodiscard]] std::optional<std::string> whatDiffers(const RunRecord& a, const RunRecord& b);

/// Runs of a store that can be compared with a run, oldest first.
struct ComparableRuns {
  std::vector<RunId> ids;
  std::vector<RunTimes> times;       ///< of the steps after the first
  std::optional<std::string> other;  ///< how the newest run that is left out differs
};

/// The completed runs of more than one step that `whatDiffers` finds equal to `like`. Cost: reads each of their steps once, a part at a
/// time.
[[nodiscard]] ComparableRuns comparableRuns(const RunStore& store, const RunRecord& like);

}  // namespace pw
