#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// How a number that a model computes over its samples, such as its loss, can be computed from the same number of each microbatch.
enum class LossForm : std::uint8_t {
  Mean,        ///< the mean of theirs, weighted by their samples: what `--loss output:NAME` takes
  Sum,         ///< the sum of theirs
  TargetMean,  ///< the mean of theirs, weighted by how many targets of each are not ignored
  Quotient,    ///< a sum over samples divided by another: the mean of theirs, weighted by their divisors
  Other,       ///< cannot be computed from theirs
  Unknown,     ///< depends on sizes known only when the model runs, or on operators without a rule
};

/// A single-number output of the model that depends on its samples.
struct OwnLoss {
  std::size_t output = 0;  ///< index into `ModelGraph::outputs`
  LossForm form = LossForm::Mean;
  const Node* node = nullptr;  ///< the operator that decided; null for an output that is an input
  /// The weight of each microbatch: its targets (TargetMean), or the divisor (Quotient).
  std::optional<ValueId> counted;
  std::int64_t ignored = -100;  ///< the target that does not count, of a TargetMean
  /// Of a Quotient whose divisor is a sum with something added or clamped: that sum. The divisor of the batch is that of the batch's sum.
  std::optional<ValueId> sum = {};
  std::string why;  ///< of Other: `exp of a mean over the samples`

  bool operator==(const OwnLoss&) const = default;
};

/// One per such output, in their order. Follows sums, means and the loss operators through operators that keep them linear (scaling, adding
/// numbers of one form, casts); anything else makes Other. Pointers live as long as the graph. Cost: linear.
[[nodiscard]] std::vector<OwnLoss> ownLosses(const ModelGraph& graph);

/// The one of this output; nothing where it does not depend on the samples or is not a single number.
[[nodiscard]] std::optional<OwnLoss> ownLossOf(const ModelGraph& graph, ValueId output);

/// The difference between a step on microbatches and the same on the whole batch that training on this output makes, in one sentence
/// without a full stop; empty for a Mean.
[[nodiscard]] std::string lossBias(const ModelGraph& graph, const OwnLoss& loss);

}  // namespace pw
