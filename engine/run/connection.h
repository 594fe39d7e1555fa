#pragma once

#include <memory>
#include <optional>

#include "backends/messages/communicator.h"
#include "backends/messages/meeting.h"
#include "engine/run/rank.h"
#include "engine/run/settings.h"

namespace pw {

/// Meets the other ranks, or continues with them where they have met already (`met`); compares settings, loads LibTorch and connects. Fills
/// what the training needs of both. `isInTouch`: see `meetOthers`. Throws Error and UsageError.
[[nodiscard]] const TorchBackend& connectRank(const RunSettings& settings, const Plan& plan, const ModelGraph& graph,
                                              const RankEnvironment& environment, const std::optional<Meeting>& met,
                                              std::unique_ptr<Communicator>& communicator, bool& isInTouch, const RunObserver& observer,
                                              TrainOptions& options);

}  // namespace pw
