#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backends/store/past_runs.h"
#include "simulator/model/model_graph.h"

namespace pw::gui {

/// The profile of the newest run of this model, with microbatches of this size, that `calibratedBy` can use, calibrated by all that were
/// planned from it. Throws UsageError where the store has no such run.
[[nodiscard]] std::shared_ptr<const CalibratedProfile> calibratedFor(const std::string& store, const ModelGraph& graph,
                                                                     std::int64_t microbatch);

}  // namespace pw::gui
