#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "schedules/answer.h"
#include "simulator/model/loss.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// The weight of a microbatch's own loss (`--loss output:NAME`) in the loss of the batch: a number that depends on the model's inputs only,
/// so that the weights of all microbatches are known before the first backward.
struct LossCount {
  ValueId value;
  std::optional<std::int64_t> ignored;  ///< the number of elements that are not this; without it, the sum of the elements
  std::vector<NodeId> nodes;            ///< that compute the value from the inputs, ascending; none for an input
  /// What the count of the batch follows from, where that is not the sum of the microbatches' counts but of this value, with something
  /// added once or clamped.
  std::optional<ValueId> sum = {};

  bool operator==(const LossCount&) const = default;
};

/// Of `--loss-count`: `auto` (what the loss is a mean over or divided by, see loss_form.h), `NAME` of an output (its sum), or
/// `NAME[:ignore=V]` of an input (its elements that are not V, −100 without it; an output too takes `:ignore=V`). Throws UsageError naming
/// what there is for another word, for a loss that `auto` cannot weigh, and for a value that needs parameters, buffers, random numbers or
/// memory that is changed in place.
[[nodiscard]] LossCount parseLossCount(const ModelGraph& graph, const Loss& loss, const std::string& text);
/// The same, with that sentence as an answer.
Answer<LossCount> tryLossCount(const ModelGraph& graph, const Loss& loss, const std::string& text);

/// `lossBias` of a loss `output:NAME`; empty for other losses, which weight their targets themselves.
[[nodiscard]] std::string lossBias(const ModelGraph& graph, const Loss& loss);

}  // namespace pw
