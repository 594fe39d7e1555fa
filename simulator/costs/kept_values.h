#pragma once

#include <functional>
#include <vector>

#include "simulator/model/autocast.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// What a forward leaves for its backward, estimated from what each operator keeps (`Keeps`).
struct KeptValues {
  std::vector<bool> whole;    ///< by value, of those that are no view of another: it is there until the backward
  std::vector<Bytes> bytes;   ///< by value, likewise: it, where it is whole, and its copies in another type
  std::vector<NodeId> by;     ///< by value, likewise: the first node that keeps it itself, whose backward comes last; −1: none
  std::vector<Bytes> ofNode;  ///< by node: masks, indices and copies that are no value of the graph
};

/// `computed`: how large a value is while computing, 0 where that is not known; `traced`: as the graph says. An operator keeps something
/// where a gradient passes it. A product keeps its own cast copy of a float32 input, and an operator that autocast computes in float32 a
/// wide one of a 16-bit input; parameters, buffers and inputs of the model are there anyway, but not their copies. `copies`: attention with
/// dropout keeps scaled copies of its inputs instead of these, as PyTorch computes it on a CPU. Cost: linear.
[[nodiscard]] KeptValues keptValues(const ModelGraph& graph, const std::vector<bool>& gradient, const AutocastTypes& types,
                                    const std::function<Bytes(ValueId)>& computed, const std::function<Bytes(ValueId)>& traced,
                                    bool copies = false);

}  // namespace pw
