#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// How the work of an operator is estimated.
enum class Counting : std::uint8_t {
  ByFlops,     ///< by its multiply-adds, see `forwardFlops`
  ByBytes,     ///< by the memory it reads and writes: element-wise operators, reductions, copies, indexing
  BySubgraph,  ///< by what its sub-graphs compute
  Nothing,     ///< views, assertions, numbers
  Unknown,
};

/// By the operator's row (simulator/operators/operators.h); a dropout that is off counts as a view.
[[nodiscard]] Counting countingOf(const Node& node);

/// Operators that estimates leave out, of one module and for one reason.
struct NotCounted {
  std::string op;      ///< `linalg_svd`, `torch.ops.mylib.attention.default`
  std::string module;  ///< empty: the root
  std::string why;     ///< `no rule for its cost`
  int count = 1;       ///< calls

  bool operator==(const NotCounted&) const = default;
};

/// Operators whose FLOPs and bytes are not known at this microbatch, in the order of their first call: without a rule, of a size that
/// depends on data and cannot be expected, or in a loop with an unknown number of iterations (counted once). Estimated times leave them
/// out. Cost: linear.
[[nodiscard]] std::vector<NotCounted> notCounted(const ModelGraph& graph, std::int64_t microbatch);

/// `not counted: 4 × linalg_svd in blocks.0 (no rule for its cost); …`; empty for an empty list. At most `most` entries, then the number of
/// the rest.
[[nodiscard]] std::string notCountedText(const std::vector<NotCounted>& list, std::size_t most = 6);

}  // namespace pw
