#pragma once

#include <optional>
#include <vector>

#include "simulator/costs/profile.h"

namespace pw {

/// FLOPs of one node's forward: matrix products, convolutions, attention, recurrent layers, bags and Fourier transforms, 2 per
/// multiply-add; the sum over sub-graphs, the larger branch of a `cond`, one iteration of a loop; 0 for all others. A causal mask saves
/// nothing. Nothing where a size that this needs depends on data.
[[nodiscard]] std::optional<double> forwardFlops(const ModelGraph& graph, const Node& node, const Bindings& bindings);

/// What a product multiplies, as far as it needs a gradient (`gradient`, by value: `needsGradient`): no summands, as a bias.
[[nodiscard]] std::vector<ValueId> trainedFactors(const Node& node, const std::vector<bool>& gradient);

/// FLOPs of the backwards of all nodes whose forwards take so many (`forward`, by node). Of a product and a Fourier transform as many as of
/// its forward for each of `trainedFactors`, at most two of what is a sequence of products (recurrent layers, einsum, multi_dot); of
/// attention and sub-graphs twice as many where anything in them needs a gradient. What kernels compute again (scores of fused attention)
/// does not count.
[[nodiscard]] double backwardFlops(const ModelGraph& graph, const std::vector<bool>& gradient, const std::vector<double>& forward);

}  // namespace pw
