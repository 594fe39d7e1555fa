#pragma once

#include <exception>
#include <string>

#include "app/cli/run_options.h"
#include "engine/meeting.h"
#include "simulator/plan/plan.h"

namespace pw::cli {

/// Puts the archives of `--model` in place of the plan's. Throws UsageError where their number is not the plan's, or one of the plan's is
/// not there.
void takeModels(const RunOptions& options, Plan& plan);

/// What to say where a plan of an older version does not tell which model it is for; else empty.
[[nodiscard]] std::string modelNote(const RunOptions& options, const Plan& plan);

/// What must be the same on all ranks: build, plan, model, weights, data, checkpoint, and every option that says what is computed or who
/// waits for whom. Not paths, threads, timeouts and what one rank writes. Reads the files' directories.
[[nodiscard]] JobFields fieldsOf(const RunOptions& options, const Plan& plan, const ModelGraph& graph);

/// Meets the other ranks and compares the fields; the dictionary that they exchange addresses at. `isInTouch` becomes true, as from
/// then on the others learn of this rank's failures by themselves.
[[nodiscard]] KeyValueStore meetOthers(const RankEnvironment& environment, const Rendezvous& rendezvous, const JobFields& fields,
                                       bool& isInTouch);

/// Tells the other ranks that this one cannot take part, where nobody else does: our launcher and torchrun's agent do.
void excuseRank(const RunOptions& options, const RankEnvironment& environment, const std::exception& cause, bool isInTouch) noexcept;

}  // namespace pw::cli
