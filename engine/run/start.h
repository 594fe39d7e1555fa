#pragma once

#include <exception>
#include <string>

#include "app/cli/run_options.h"
#include "engine/meeting.h"
#include "simulator/plan/plan.h"

namespace pw::cli {

/// Replaces the plan's archives by those of `--model`. Throws UsageError if their number differs from the plan's, or one of the plan's is
/// missing.
void takeModels(const RunOptions& options, Plan& plan);

/// A note for plans of an older version, which do not identify their model; otherwise empty.
[[nodiscard]] std::string modelNote(const RunOptions& options, const Plan& plan);

/// What must be the same on all ranks: build, plan, model, weights, data, checkpoint, and every option that says what is computed or who
/// waits for whom. Not paths, threads, timeouts and what one rank writes. Reads the files' directories.
[[nodiscard]] JobFields fieldsOf(const RunOptions& options, const Plan& plan, const ModelGraph& graph);

/// Meets the other ranks and compares the fields; the dictionary that they exchange addresses at. `isInTouch` becomes true, as from
/// then on the others learn of this rank's failures by themselves.
[[nodiscard]] KeyValueStore meetOthers(const RankEnvironment& environment, const Rendezvous& rendezvous, const JobFields& fields,
                                       bool& isInTouch);

/// Tells the other ranks that this one cannot take part, unless our launcher or torchrun's agent does that.
void excuseRank(const RunOptions& options, const RankEnvironment& environment, const std::exception& cause, bool isInTouch) noexcept;

}  // namespace pw::cli
