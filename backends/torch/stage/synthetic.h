#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/model/model_graph.h"

namespace at {
class Tensor;
}

namespace pw {

/// How many values an integer input may have, found by following it through the nodes that pass indices on to an embedding or a loss; 0
/// when it selects nothing.
[[nodiscard]] std::int64_t indexRange(const ModelGraph& graph, ValueId input);

/// Drawn from the seed alone: standard normal numbers; integers in [0, range), ones without a range.
[[nodiscard]] at::Tensor syntheticTensor(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t range, std::uint64_t seed);

/// The value that a loss inside the model ignores among its targets, if this input carries them there.
[[nodiscard]] std::optional<std::int64_t> ignoredTarget(const ModelGraph& graph, ValueId input);

/// Marks the last targets of each sample along `dimension` as ignored: for sample s of n a fraction of (s + 1) / (2 n), never all of them.
void ignoreSome(at::Tensor& targets, std::int64_t dimension, std::int64_t samples, std::int64_t ignored);

}  // namespace pw
