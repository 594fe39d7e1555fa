#pragma once

#include <cstdint>

#include "simulator/costs/operator_costs.h"

namespace pw {

/// As `bindBatch`, and binds data-dependent sizes to their expected values where the graph shows them: each of E experts gets 1/E of the
/// routed tokens, as if the router spread them evenly. For costs, never for shapes. Other data-dependent sizes stay unbound. Throws as
/// bindBatch does.
[[nodiscard]] Bindings bindExpected(const ModelGraph& graph, std::int64_t microbatch);

}  // namespace pw
