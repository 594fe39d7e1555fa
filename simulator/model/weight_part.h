#pragma once

#include <vector>

#include "simulator/model/model_graph.h"
#include "simulator/operators/operators.h"

namespace pw {

/// By value: whether it is a trained parameter, or a view of the whole of one. `gradient`: `needsGradient`.
[[nodiscard]] std::vector<bool> wholeParameters(const ModelGraph& graph, const std::vector<bool>& gradient);

/// In which form the gradients of a node's parameters are computed apart from that of its input, so that they can be left for W; `None`
/// where both are computed together, in I: the operator has no such form, a parameter stands where it does not expect one, more than one
/// input needs a gradient, or shapes, types or flags are others than it takes. `parameters`, `gradient`: by value, whether it is a trained
/// parameter (or a whole view of one), and whether it needs a gradient. Of nodes in sub-graphs nothing is left for W. Estimates and the
/// engine both ask this; the engine also takes `None` where autocast gives the operands types that do not fit.
[[nodiscard]] WeightPart weightPartOf(const ModelGraph& graph, const Node& node, const std::vector<bool>& parameters,
                                      const std::vector<bool>& gradient);

}  // namespace pw
