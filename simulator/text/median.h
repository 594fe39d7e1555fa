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

/// As `medianOf`, but always one of the numbers: of two in the middle the lower one. Cost: linear.
template <class Number>
[[nodiscard]] std::optional<Number> lowerMedianOf(std::vector<Number> numbers) {
  if (numbers.empty()) return std::nullopt;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>((numbers.size() - 1) / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

/// Likewise: of two in the middle the upper one.
template <class Number>
[[nodiscard]] std::optional<Number> upperMedianOf(std::vector<Number> numbers) {
  if (numbers.empty()) return std::nullopt;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

}  // namespace pw
