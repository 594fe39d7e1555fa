#pragma once

#include <vector>

namespace pw::gui {

/// One axis of a plot: a range of values, with ticks at round values.
class ScatterAxis {
 public:
  ScatterAxis() = default;
  /// Covers all values with a margin at both ends, never below 0; for a single value a range around it. No values: 0 to 1.
  static ScatterAxis over(const std::vector<double>& values);

  [[nodiscard]] double from() const { return from_; }
  [[nodiscard]] double to() const { return to_; }
  /// The position of a value: 0 at the start, 1 at the end.
  [[nodiscard]] double place(double value) const { return (value - from_) / (to_ - from_); }
  /// At most `most` ≥ 2 values within the range, ascending, at equal distances of 1, 2 or 5 times a power of ten units; of bytes the unit
  /// is that power of 1024 which suits the range, of times a minute or an hour where the range has two of them. Two at least, but of a few
  /// bytes: where only two fit, they may be several of these distances apart.
  [[nodiscard]] std::vector<double> ticks(int most, bool bytes) const;

 private:
  double from_ = 0, to_ = 1;
};

}  // namespace pw::gui
