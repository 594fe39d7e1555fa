#pragma once

#include <cstdint>

#include "simulator/model/model_graph.h"

namespace pw {

/// How an operator treats dimensions.
enum class DimensionRule : std::uint8_t {
  Each,
  Sizes,
  Reshape,
  Permute,
  Expand,
  Repeat,
  Reduce,
  Scan,
  Join,
  Piece,
  MatMul,
  Linear,
  Attention,
  Spatial,
  Pool,
  Trailing,
  Group,
  Recurrent,
  Lookup,
  Index,
  Gather,
  Loss,
  Matrix,
  BatchNorm,
  Einsum,
  Unknown
};

/// The operator's rule, in place or not; `Unknown` for those that it does not know.
[[nodiscard]] DimensionRule dimensionRuleOf(const Node& node);

}  // namespace pw
