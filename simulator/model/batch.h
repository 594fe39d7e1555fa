#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "schedules/answer.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Why a model cannot run with a batch [samples]: it was exported for another one. Nothing where it can; `bindBatch` throws the same.
[[nodiscard]] std::optional<Impossible> obstacleToBatch(const ModelGraph& graph, std::int64_t batch);

/// Where the samples are in a tensor: dimension `dimension` holds `outer` blocks, each with `rowsPerSample` rows of every sample, one
/// sample after the other.
struct BatchAxis {
  std::size_t dimension = 0;
  std::int64_t rowsPerSample = 1;
  std::int64_t outer = 1;  ///< more than 1 where [T, B] was flattened: the rows of a sample are not contiguous

  bool operator==(const BatchAxis&) const = default;
};

/// The dimension along which a value is cut into microbatches, or merged from them; nothing for one that is the same for the whole batch (a
/// mask, a table of positions) or has no dimension (a loss). Ties: the first dimension.
/// - With a batch symbol (`batchSymbol`): the dimension whose size is a whole multiple of the batch, whatever the symbol's value.
/// - With a fixed batch: dimension 0 of an input that has exactly the exported batch there, and of another value whose dimension 0 is a
///   multiple of it.
/// For a value that nodes compute, `outer` follows the samples through them (`sampleFlows`). Cost: linear in the nodes then.
[[nodiscard]] std::optional<BatchAxis> batchAxis(const ModelGraph& graph, ValueId value);
/// The same by sizes alone: `outer` is 1.
[[nodiscard]] std::optional<BatchAxis> batchAxisBySize(const ModelGraph& graph, ValueId value);

/// Tokens of a sample: the other dimension of the first input that has two, one of them the batch, and holds integers. 0: there is none.
[[nodiscard]] std::int64_t tokensPerSample(const ModelGraph& graph);

}  // namespace pw
