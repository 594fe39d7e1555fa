#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "simulator/model/flowing_call.h"

namespace pw {

/// One way to compute a call in shards: some tensors are cut into equal blocks of one dimension, all others are whole on every shard.
struct Sharding {
  /// By tensor of the call: the dimension that is cut; nothing: every shard has the whole tensor.
  std::vector<std::optional<std::size_t>> tensors;
  /// By result: the dimension along which the blocks of the shards make the result; nothing where `combines` says how.
  std::vector<std::optional<std::size_t>> results;
  /// Where a shard's result has the full size: how those of all shards make the result (partial sums of a product); else `None`.
  Combination combines = Combination::None;
  /// Tensors that only one shard may add, the others zeros or nothing: the bias of a product in partial sums.
  std::vector<std::size_t> addedOnce;

  bool operator==(const Sharding&) const = default;
};

/// All ways to cut a call in one dimension, in the order of the results' dimensions, then of what is summed over; a dimension that is in
/// none of them must be whole on every shard. Derived from the dimension rule of the operator's row: products by the letters of their
/// dimensions, all others as samples pass through them, a shard taken for a sample. Sizes must be multiples of `shards`; sizes among the
/// arguments (`view`, `expand`) become those of a shard. Empty for an operator without a rule. Cost: linear in the dimensions.
[[nodiscard]] std::vector<Sharding> shardingsOf(const FlowingCall& call, std::int64_t shards);

}  // namespace pw
