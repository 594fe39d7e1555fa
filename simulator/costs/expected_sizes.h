#pragma once

#include <cstdint>

#include "simulator/costs/operator_costs.h"

namespace pw {

/// `bindBatch`, and for sizes that depend on data how large they are expected to be, where the graph says: of the tokens that reach one of
/// E experts 1/E of those that are routed, as if the router spread them evenly. For costs, never for shapes. Other such sizes stay unbound.
/// Throws as bindBatch does.
[[nodiscard]] Bindings bindExpected(const ModelGraph& graph, std::int64_t microbatch);

}  // namespace pw
