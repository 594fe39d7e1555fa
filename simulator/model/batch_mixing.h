#pragma once

#include <string>
#include <vector>

#include "simulator/model/mixing_rules.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// An operator after which a sample's result depends on the other samples of its microbatch, or may.
struct Mixing {
  const Node* node = nullptr;  ///< in the graph, or in one of its sub-graphs
  std::string how;             ///< what it does to the samples: `reduces over the samples`
  /// Its result is a single number that leads to nothing but single numbers, so it is (part of) a loss or a measure the model itself
  /// computes.
  bool ownLoss = false;
  bool sums = false;     ///< a loss that is a sum over samples, not a mean
  bool unknown = false;  ///< the operator has no rule: whether it mixes the samples is not known

  bool operator==(const Mixing&) const = default;
};

/// All such operators, in execution order. Follows the samples from the inputs (along their `batchAxis`) through shapes and operators; an
/// operator it does not know, a custom one for example, is reported as unknown where its result has the samples in one dimension, and as
/// mixing them where it has not; so an operator reported may turn out harmless. Batch norm is not reported, and of operators that select by
/// data, whose results have sizes known only when the model runs, nothing after them is. Pointers live as long as the graph. Cost: linear
/// in the nodes.
[[nodiscard]] std::vector<Mixing> batchMixing(const ModelGraph& graph);

/// What every value has of the samples, by value index; `Mixed` too for what is computed from the samples and has sizes known only when the
/// model runs.
[[nodiscard]] std::vector<SampleFlow> sampleFlows(const ModelGraph& graph);

}  // namespace pw
