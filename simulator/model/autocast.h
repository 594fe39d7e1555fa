#pragma once

#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// What computing in 16 bits (autocast) makes of a graph traced in float32, as the engine runs it.
struct AutocastTypes {
  /// By node: a product whose float32 inputs are cast: linear, mm, convolutions, attention and the like.
  std::vector<bool> casts;
  /// By value: 16 bits wide though traced as float32: results of products, and of operators that read only such values and that autocast
  /// does not compute in float32 (norms, softmax, exponentials, sums and losses).
  std::vector<bool> isLower;
  /// By value: what is kept of it for the backward is 16 bits wide: it is so itself, or all that read it are products, which keep their
  /// cast copy.
  std::vector<bool> isKeptLower;
};

/// `flops`: of each node's forward; a product without any is no product. With precision Unknown all are false. Cost: linear.
[[nodiscard]] AutocastTypes autocastTypes(const ModelGraph& graph, DType precision, const std::vector<double>& flops);

}  // namespace pw
