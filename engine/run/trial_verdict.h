#pragma once

#include <vector>

#include "engine/run/trial.h"
#include "simulator/report/split_verdict.h"

namespace pw {

/// The verdict with what was tried: whether it agrees, and what it answers where the operators' rules leave it open. `trials`: as they were
/// tried, may be empty; the first without --loss-count counts.
[[nodiscard]] SplitVerdict withTrials(SplitVerdict verdict, const std::vector<Trial>& trials);

}  // namespace pw
