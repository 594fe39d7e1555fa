#pragma once

#include <functional>
#include <optional>
#include <string>

#include "engine/run/evaluation.h"
#include "engine/run/record.h"
#include "engine/run/result.h"
#include "engine/run/settings.h"
#include "engine/run/start.h"

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

/// A rank's part of a run: meets the others, connects (`contact`), trains or evaluates, and records. Throws Error and UsageError.
[[nodiscard]] RankOutcome runRank(const RunSettings& settings, const Plan& plan, const RankEnvironment& environment, RankContact& contact,
                                  StoredRun& stored, const RunObserver& observer);

}  // namespace pw
