#pragma once

#include <string>
#include <vector>

#include "backends/traces/events/imported.h"
#include "backends/traces/readers/ndtimeline.h"

namespace pw {

/// The steps of these events, which were read from `files`. Actions get their microbatch from the file or, without, from their order;
/// messages by their order on each worker. Files whose clocks disagree are put on one (`clockMoves`). Throws UsageError where there is no
/// step with actions.
[[nodiscard]] ImportedTrace ndSteps(NdEvents events, const std::vector<std::string>& files, std::string title);

}  // namespace pw
