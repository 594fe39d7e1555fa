#pragma once

#include <optional>

#include "simulator/costs/profile.h"

namespace pw {

/// FLOPs of one node's forward: matrix products, convolutions, attention, recurrent layers, bags and Fourier transforms, 2 per
/// multiply-add; the sum over sub-graphs, the larger branch of a `cond`, one iteration of a loop; 0 for all others. A causal mask saves
/// nothing. Nothing where a size that this needs depends on data.
[[nodiscard]] std::optional<double> forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings);

}  // namespace pw
