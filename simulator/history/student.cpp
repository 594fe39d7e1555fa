#include "simulator/history/student.h"

#include <cassert>
#include <cmath>
#include <numbers>
#include <numeric>

namespace pw {
namespace {

/// The probability that Student's t stays below `t`.
double studentDistribution(double t, int degrees) {
  const double angle = std::atan(t / std::sqrt(static_cast<double>(degrees)));
  const double cosine = std::cos(angle), square = cosine * cosine;
  const bool isOdd = degrees % 2 == 1;
  double term = isOdd ? cosine : 1;
  double sum = degrees > 1 ? term : 0;
  for (int k = isOdd ? 3 : 2; k < degrees; k += 2) {
    term *= square * (k - 1) / k;
    sum += term;
  }
  const double within = isOdd ? 2 / std::numbers::pi * (angle + std::sin(angle) * sum) : std::sin(angle) * sum;
  return (1 + within) / 2;
}

double meanOf(std::span<const double> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

double squaresAround(std::span<const double> numbers, double mean) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0,
                         [mean](double sum, double number) { return sum + (number - mean) * (number - mean); });
}

}  // namespace

double studentQuantile(double probability, int degrees) {
  assert(probability > 0 && probability < 1 && degrees >= 1);
  double low = -1, high = 1;
  while (studentDistribution(low, degrees) > probability) low *= 2;
  while (studentDistribution(high, degrees) < probability) high *= 2;
  for (int halving = 0; halving < 200 && low < high; ++halving) {
    const double middle = low + (high - low) / 2;
    (studentDistribution(middle, degrees) < probability ? low : high) = middle;
  }
  return low + (high - low) / 2;
}

MeanDifference meanDifference(std::span<const double> before, std::span<const double> after, double probability) {
  assert(!before.empty() && !after.empty() && before.size() + after.size() >= 3);
  const auto n = static_cast<double>(before.size()), m = static_cast<double>(after.size());
  const double meanBefore = meanOf(before), meanAfter = meanOf(after);
  const double variance = (squaresAround(before, meanBefore) + squaresAround(after, meanAfter)) / (n + m - 2);
  const double spread =
      studentQuantile(probability, static_cast<int>(before.size() + after.size()) - 2) * std::sqrt(variance * (1 / n + 1 / m));
  const double value = meanAfter - meanBefore;
  return {value, value - spread, value + spread};
}

}  // namespace pw
