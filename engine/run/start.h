#pragma once

#include <exception>
#include <memory>
#include <string>

#include "backends/messages/communicator.h"
#include "engine/processes/meeting.h"
#include "engine/run/settings.h"
#include "simulator/plan/plan.h"

namespace pw {

/// What must be the same on all ranks: build, plan, model, weights, data, checkpoint, and every option that says what is computed or who
/// waits for whom. Not paths, threads, timeouts and what one rank writes. Reads the files' directories.
[[nodiscard]] JobFields fieldsOf(const RunSettings& settings, const Plan& plan, const ModelGraph& graph);

/// How far a rank is connected to its job. It outlives a failure of the rank: what it has of the others is what they learn from.
struct RankContact {
  std::unique_ptr<Communicator> communicator;  ///< null: not yet; peers that notice its end must not report before this rank does
  bool isInTouch = false;                      ///< the others learn of this rank's failures by themselves
};

/// Meets the other ranks and compares the fields; the dictionary that they exchange addresses at. This rank is in touch from then on.
[[nodiscard]] KeyValueStore meetOthers(const RankEnvironment& environment, const Rendezvous& rendezvous, const JobFields& fields,
                                       RankContact& contact);

/// Tells the other ranks that this one cannot take part, unless they learn it by themselves, or our launcher or torchrun's agent does that.
void reportRankAbsence(const RunRequest& request, const RankEnvironment& environment, const std::exception& cause,
                       const RankContact& contact) noexcept;

}  // namespace pw
