#pragma once

#include <string>
#include <vector>

#include "simulator/model_graph.h"

namespace pw {

/// An operator after which a sample's result depends on the other samples of its microbatch, or may.
struct Mixing {
  const Node* node = nullptr;  ///< in the graph, or in one of its sub-graphs
  std::string how;             ///< what it does to the samples: `reduces over the samples`
  /// Its result is a single number that leads to nothing but single numbers, so it is (part of) a loss or a measure the model itself computes.
  bool ownLoss = false;
  bool sums = false;  ///< a loss that is a sum over samples, not a mean

  bool operator==(const Mixing&) const = default;
};

/// All such operators, in execution order. Follows the samples from the inputs (their dimension 0) through shapes and operators; an operator it
/// does not know is taken to work on each sample alone where its result has the samples in one dimension, and to mix them where it has not. So a
/// custom operator may escape, and an operator reported may turn out harmless. Batch norm is not reported, and of operators that select by data,
/// whose results have sizes known only when the model runs, nothing behind them is. Pointers live as long as the graph. Cost: linear in the nodes.
[[nodiscard]] std::vector<Mixing> batchMixing(const ModelGraph& graph);

}  // namespace pw
