#pragma once

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

namespace pw {

/// The number in the middle, of two the mean (of integers rounded down); nothing of none. Cost: n log n.
template <class Number>
[[nodiscard]] std::optional<Number> medianOf(std::vector<Number> numbers) {
  if (numbers.empty()) return std::nullopt;
  std::ranges::sort(numbers);
  const std::size_t middle = numbers.size() / 2;
  using std::midpoint;
  return numbers.size() % 2 == 1 ? numbers[middle] : midpoint(numbers[middle - 1], numbers[middle]);
}

}  // namespace pw
