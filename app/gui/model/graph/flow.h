#pragma once

#include <vector>

#include "simulator/model/model_graph.h"

namespace pw::gui {

/// One node, or the model's surroundings, reads a tensor that another makes. Places are node numbers; −1: an input of the model; the number
/// of nodes: an output of the model.
struct TensorUse {
  ValueId value;
  int from = 0, to = 0;
  bool sent = true;  ///< over a cut between both; inputs are given to every stage, and cheap values are computed again
};

/// All that flows in a model, ascending by maker, value and reader; parameters, buffers, constants and numbers from sizes do not flow.
struct ModelFlow {
  std::vector<TensorUse> uses;
  std::vector<Bytes> bytes;  ///< by value, of one microbatch; 0 where the size depends on data
  int nodes = 0;
};

/// Cost: linear in what nodes read.
[[nodiscard]] ModelFlow flowOf(const ModelGraph& graph, const Bindings& bindings);

/// What flows from one box of a graph to a later one.
struct FlowEdge {
  int from = 0, to = 0;         ///< boxes, from < to
  std::vector<ValueId> values;  ///< each once, ascending
  Bytes bytes = 0;              ///< of all of them, one microbatch
  bool sent = false;            ///< some of it is sent over a cut between both
};

/// The edges between boxes, ascending by from and to. `boxOfNode`: ascending, from 1; box 0 is where inputs come from, `lastBox` where
/// outputs go. Cost: n log n in uses.
[[nodiscard]] std::vector<FlowEdge> edgesBetween(const ModelFlow& flow, const std::vector<int>& boxOfNode, int lastBox);

/// What is sent over the cut before stage `split` + 1, for stages that begin at `begins`: each value once for each stage that it goes to,
/// as in a partition without costs.
[[nodiscard]] Bytes bytesAcross(const ModelFlow& flow, const std::vector<NodeId>& begins, std::size_t split);

}  // namespace pw::gui
