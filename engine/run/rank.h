#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/run/evaluation.h"
#include "engine/run/record.h"
#include "engine/run/result.h"
#include "engine/run/settings.h"

namespace pw {

/// Steps done, of all, and a note on the last.
using StepProgress = std::function<void(int done, int all, const std::string& note)>;

/// Who watches a rank's run.
struct RunObserver {
  std::function<void(const std::string&)> warn;  ///< gets sentences for the user, on any thread
  std::function<StepProgress()> progress;        ///< called on the one rank that shows progress, before its first step; may be empty
};

/// What rank 0 knows at the end; nothing on the others.
struct RankOutcome {
  std::optional<RunResult> training;  ///< `record.failure` is set where the training ended but did not succeed
  std::optional<EvaluationResult> evaluation;
};

/// A rank's part of a run: meets the others, connects, trains or evaluates, and records. Fills `communicator`, which must outlive a
/// failure: peers that notice must not report before this rank does. `isInTouch`: see `meetOthers`. Throws Error and UsageError.
[[nodiscard]] RankOutcome runRank(const RunSettings& settings, const Plan& plan, const RankEnvironment& environment,
                                  std::unique_ptr<Communicator>& communicator, StoredRun& stored, bool& isInTouch,
                                  const RunObserver& observer);

}  // namespace pw
