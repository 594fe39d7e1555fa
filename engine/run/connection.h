#pragma once

#include <optional>

#include "backends/messages/meeting.h"
#include "engine/run/rank.h"
#include "engine/run/settings.h"
#include "engine/run/start.h"

namespace pw {

/// What a rank is about to do, and where. Keeps references.
struct RankTask {
  const RunSettings& settings;
  const Plan& plan;  ///< of the job
  const Plan& own;   ///< as the rank's replica runs it
  const ModelGraph& graph;
  const RankEnvironment& environment;
  const std::optional<Meeting>& met;  ///< with the other ranks, where that was before
};

/// What a connected rank trains with.
struct ConnectedRank {
  TrainOptions options;  ///< with the rank's device
  const TorchBackend& torch;
};

/// Meets the other ranks, or continues with them where they have met already; compares settings, loads LibTorch and connects: `contact`
/// then has a communicator. Throws Error and UsageError.
[[nodiscard]] ConnectedRank connectRank(const RankTask& task, TrainOptions options, RankContact& contact, const RunObserver& observer);

}  // namespace pw
