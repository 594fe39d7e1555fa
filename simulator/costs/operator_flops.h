#pragma once

#include "simulator/costs/profile.h"

namespace pw {

/// FLOPs of one node's forward: matrix products, convolutions, attention, recurrent layers, bags and Fourier transforms, 2 per
/// multiply-add; of sub-graphs the sum, of `cond` the larger branch, of a loop one round; 0 for others. A causal mask saves nothing. Throws
/// Error for a size that depends on data.
[[nodiscard]] double forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings);

}  // namespace pw
