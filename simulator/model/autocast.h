#pragma once

#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// Which values of a graph traced in float32 are 16 bits wide under autocast, as the engine runs it.
struct AutocastTypes {
  /// By node: whether it is a product whose float32 inputs are cast: linear, mm, convolutions, attention and similar operators.
  std::vector<bool> casts;
  /// By value: 16 bits wide though traced as float32: results of products, and of operators that read only such values and that autocast
  /// does not compute in float32 (norms, softmax, exponentials, sums and losses).
  std::vector<bool> isLower;
};

/// `flops`: of each node's forward; one without FLOPs does not count as a product. With precision Unknown all are false. Cost: linear.
[[nodiscard]] AutocastTypes autocastTypes(const ModelGraph& graph, DType precision, const std::vector<double>& flops);

}  // namespace pw
