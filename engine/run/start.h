#pragma once

#include <exception>
#include <string>

#include "engine/processes/meeting.h"
#include "engine/run/settings.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What must be the same on all ranks: build, plan, model, weights, data, checkpoint, and every option that says what is computed or who
/// waits for whom. Not paths, threads, timeouts and what one rank writes. Reads the files' directories.
[[nodiscard]] JobFields fieldsOf(const RunSettings& options, const Plan& plan, const ModelGraph& graph);

/// Meets the other ranks and compares the fields; the dictionary that they exchange addresses at. `isInTouch` becomes true, as from
/// then on the others learn of this rank's failures by themselves.
[[nodiscard]] KeyValueStore meetOthers(const RankEnvironment& environment, const Rendezvous& rendezvous, const JobFields& fields,
                                       bool& isInTouch);

/// Tells the other ranks that this one cannot take part, unless our launcher or torchrun's agent does that.
void reportRankAbsence(const RunSettings& options, const RankEnvironment& environment, const std::exception& cause,
                       bool isInTouch) noexcept;

}  // namespace pw
