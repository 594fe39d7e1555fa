#pragma once

#include <string>
#include <vector>

#include "simulator/model/mixing_rules.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// An operator after which a sample's result depends on the other samples of its microbatch, or may.
struct Mixing {
  const Node* node = nullptr;  ///< in the graph, or in one of its sub-graphs
  std::string how;             ///< what it does with the samples: `reduces over the samples`
  /// Its result is a single number from which only single numbers are computed, so it is (part of) a loss or metric that the model itself
  /// computes.
  bool ownLoss = false;
  bool sums = false;     ///< a loss that is a sum over samples, not a mean
  bool unknown = false;  ///< the operator has no rule: whether it mixes samples is unknown

  bool operator==(const Mixing&) const = default;
};

/// All such operators, in execution order. Follows the samples from the inputs (along their `batchAxis`) through shapes and operators; an
/// operator it does not know, a custom one for example, is reported as unknown where its result has the samples in one dimension, and as
/// mixing them where it has not; so a reported operator may be harmless. Batch norm is not reported, nor is anything after an operator that
/// selects by data, whose result sizes are known only at run time. Pointers live as long as the graph. Cost: linear in the nodes.
[[nodiscard]] std::vector<Mixing> batchMixing(const ModelGraph& graph);

/// How every value depends on the samples, by value index. `Mixed` also for values computed from the samples whose sizes are known only at
/// run time.
[[nodiscard]] std::vector<SampleFlow> sampleFlows(const ModelGraph& graph);

}  // namespace pw
