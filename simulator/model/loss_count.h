#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// Position of the output of this name, else of this name in the trace, else of this index; nothing where there is none.
[[nodiscard]] std::optional<std::size_t> findOutput(const ModelGraph& graph, const std::string& wanted);

/// What a microbatch's own loss (`--loss output:NAME`) counts for in the batch's: a number that the model's inputs alone decide, so that
/// those of all microbatches are known before the first backward.
struct LossCount {
  ValueId value;
  std::optional<std::int64_t> ignored;  ///< the number of elements that are not this; without it, the sum of the elements
  std::vector<NodeId> nodes;            ///< that compute the value from the inputs, ascending; none for an input

  bool operator==(const LossCount&) const = default;
};

/// Of `--loss-count`: `auto` (what the loss is a mean over or divided by, see loss_form.h), `NAME` of an output (its sum), or
/// `NAME[:ignore=V]` of an input (its elements that are not V, −100 without it; an output too takes `:ignore=V`). Throws UsageError naming
/// what there is for another word, for a loss that `auto` cannot weigh, and for a value that needs parameters, buffers, random numbers or
/// memory that is changed in place.
[[nodiscard]] LossCount parseLossCount(const ModelGraph& graph, const std::string& loss, const std::string& text);

/// `lossBias` of a loss `output:NAME`; empty for other losses, which weigh their targets by themselves.
[[nodiscard]] std::string lossBias(const ModelGraph& graph, const std::string& loss);

}  // namespace pw
