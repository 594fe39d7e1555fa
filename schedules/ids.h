#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "schedules/quantity.h"

namespace pw {

/// An integer that names one kind of thing. Mixing up ranks, stages and microbatches is a classic bug in this field, so each has its own
/// type; the number inside is reached by `.value` or, as a container index, by `.index()`.
template <class Tag>
struct Id {
  std::int32_t value = 0;

  constexpr Id() = default;
  constexpr explicit Id(std::int32_t v) : value(v) {}
  constexpr explicit Id(std::size_t v) : value(static_cast<std::int32_t>(v)) {}
  [[nodiscard]] constexpr std::size_t index() const { return static_cast<std::size_t>(value); }
  constexpr auto operator<=>(const Id&) const = default;
};

using Rank = Id<struct RankTag>;              ///< one worker process = one pipeline device
using Stage = Id<struct StageTag>;            ///< contiguous piece of the model, numbered globally in forward order
using Microbatch = Id<struct MicrobatchTag>;  ///< one of the M pieces of a batch
using NodeId = Id<struct NodeTag>;            ///< index of a node in `ModelGraph::nodes`
using ValueId = Id<struct ValueTag>;          ///< index of a value in `ModelGraph::values`
using RunId = Id<struct RunTag>;              ///< row of a run in the run store

/// Time in nanoseconds, from the start of the iteration unless said otherwise. Never a double.
using Ns = Quantity<struct NsTag>;

/// Sizes of tensors, files and memory.
using Bytes = Quantity<struct BytesTag>;

}  // namespace pw

template <class Tag>
struct std::hash<pw::Id<Tag>> {
  std::size_t operator()(pw::Id<Tag> id) const noexcept { return std::hash<std::int32_t>{}(id.value); }
};
