#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "engine/run/settings.h"

namespace pw {

/// Replaces the plan's archives by those of `--model`. Throws UsageError if their number differs from the plan's, or one of the plan's is
/// missing.
void takeModels(const RunRequest& request, Plan& plan);

/// A plan as it is run, and how.
struct PlanToRun {
  Plan plan;
  RunSettings settings;
};

/// The plan of `request.plan` as the request runs it, and what it leaves open settled by the plan. Throws UsageError for what cannot be
/// run.
[[nodiscard]] PlanToRun planToRun(const RunRequest& request);

/// Sentences on what of the plan does not apply to this run: its costs, its optimizer's memory, the check of its model.
[[nodiscard]] std::vector<std::string> notesOn(const RunSettings& settings, const Plan& plan);

/// Refuses a store, checkpoint or live file that cannot be written, and a checkpoint that cannot be resumed, before any rank trains; begins
/// the live file.
void prepareFiles(const RunSettings& settings);

using FileTime = std::filesystem::file_time_type;

/// Where to read on about a failure, if one of these ranks has written since then what it waited for; else nothing.
[[nodiscard]] std::string flightNote(const RunRequest& request, FileTime since, int firstRank, int ranks);

/// Starts the plan's ranks with copies of this program's call and waits for them; begins the run's record, and ends it where they fail.
/// Throws as `throwUnlessOk`.
void launchRanks(const RunSettings& settings, const Plan& plan, const std::vector<std::string>& call);

}  // namespace pw
