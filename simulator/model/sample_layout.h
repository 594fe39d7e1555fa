#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pw {

using Extents = std::vector<std::int64_t>;

/// Where the samples are in a tensor: dimension `dimension` has outer · batch · inner rows, and row (o, s, i) belongs to sample s.
struct SampleLayout {
  std::size_t dimension = 0;
  std::int64_t outer = 1;
  std::int64_t inner = 1;

  bool operator==(const SampleLayout&) const = default;
};

/// The layout after a reshape from `from` to `to` (row-major, equal numbers of elements); nothing when samples are split or regrouped, so
/// that no dimension indexes them any more. Cost: linear in the dimensions.
[[nodiscard]] std::optional<SampleLayout> reshaped(const SampleLayout& layout, const Extents& from, const Extents& to, std::int64_t batch);

/// The layout of rows [begin, begin + count) of the samples' dimension; nothing when this takes some samples and leaves others.
[[nodiscard]] std::optional<SampleLayout> sliced(const SampleLayout& layout, std::int64_t begin, std::int64_t count, std::int64_t step,
                                                 std::int64_t batch);

/// The layout in a result of `toRank` dimensions of a tensor of `fromRank` that is broadcast to it.
[[nodiscard]] SampleLayout broadcast(const SampleLayout& layout, std::size_t fromRank, std::size_t toRank);

}  // namespace pw
