#pragma once

#include <algorithm>
#include <cmath>

namespace pw {

/// The factor by which float16 gradients are multiplied, so that small ones do not underflow (Micikevicius et al., Mixed Precision
/// Training, ICLR 2018, section 3.2). Always a power of two, so that scaling does not round. Grows until gradients overflow, then shrinks,
/// with the defaults of torch.amp.GradScaler.
class LossScale {
 public:
  static constexpr double kInitial = 65536, kGrowth = 2, kBackoff = 0.5;
  static constexpr int kGrowthInterval = 2000;

  explicit LossScale(double value = kInitial, int goodSteps = 0) : value_(value), goodSteps_(goodSteps) {}

  [[nodiscard]] double value() const { return value_; }
  /// Steps in a row without an overflow since the factor changed; fewer than kGrowthInterval.
  [[nodiscard]] int goodSteps() const { return goodSteps_; }
  /// After each step: whether its gradients overflowed. Never falls below 1.
  void update(bool overflowed) {
    if (overflowed) {
      value_ = std::max(1.0, value_ * kBackoff);
      goodSteps_ = 0;
    } else if (++goodSteps_ == kGrowthInterval) {
      value_ = std::isfinite(value_ * kGrowth) ? value_ * kGrowth : value_;
      goodSteps_ = 0;
    }
  }

 private:
  double value_;
  int goodSteps_ = 0;
};

}  // namespace pw
