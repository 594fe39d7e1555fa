#pragma once

#include <string>

#include "backends/traces/events/imported.h"
#include "backends/traces/readers/ndtimeline.h"

namespace pw {

/// The steps of these events. Actions get their microbatch from the file or, without, from their order; messages by their order on each
/// worker. Throws UsageError where there is no step with actions.
[[nodiscard]] ImportedTrace ndSteps(const NdEvents& events, std::string title);

}  // namespace pw
