#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulator/model/flowing_call.h"

namespace pw {

/// The equation of an einsum: a letter for each dimension of each tensor and of the result.
struct Equation {
  std::vector<std::string> terms;
  std::string result;
};

/// Nothing for one without `->`, or with `...`.
[[nodiscard]] std::optional<Equation> equationOf(const Node& node);

/// How samples pass through products: a · b with or without a summand, an equation of einsum, attention.
[[nodiscard]] FlowResult throughMatrixProduct(const CallFlow& c);
[[nodiscard]] FlowResult throughEinsum(const CallFlow& c);
[[nodiscard]] FlowResult throughAttention(const CallFlow& c);

}  // namespace pw
