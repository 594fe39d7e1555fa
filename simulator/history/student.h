#pragma once

#include <span>

namespace pw {

/// The value that Student's t with this many degrees of freedom (≥ 1) stays below with this probability (in (0, 1)). The distribution
/// function is the finite sum of Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4; it is inverted by bisection.
/// Cost: O(degrees).
[[nodiscard]] double studentQuantile(double probability, int degrees);

/// How much larger the numbers of one sample are than those of another.
struct MeanDifference {
  double value = 0;
  double low = 0, high = 0;  ///< limits of the confidence interval

  bool operator==(const MeanDifference&) const = default;
};

/// Mean of `after` minus mean of `before`, with limits each of which the true difference passes with this probability (one-sided):
/// Student's two-sample interval with pooled variance. Both samples must have a number at least, and three together.
[[nodiscard]] MeanDifference meanDifference(std::span<const double> before, std::span<const double> after, double probability);

}  // namespace pw
