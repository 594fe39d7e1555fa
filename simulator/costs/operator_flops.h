#pragma once

#include "simulator/costs/profile.h"

namespace pw {

/// FLOPs of one node's forward: matrix products, convolutions, attention, recurrent layers, bags and Fourier transforms, 2 per
/// multiply-add; the sum over sub-graphs, the larger branch of a `cond`, one iteration of a loop; 0 for all others. A causal mask saves
/// nothing. Throws Error for a size that depends on data.
[[nodiscard]] double forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings);

}  // namespace pw
