#pragma once

#include <algorithm>

#include "backends/messages/device.h"

namespace pw {

/// Gives a GPU something to do while the host asks for a sample: else it would wait for the host between small operators, and that would be
/// measured. A stream takes some thousand calls at most, then the host waits for it: so the host gets a start of some laps only, again and
/// again.
class HeadStart {
 public:
  static constexpr Ns kSteps = 64;

  explicit HeadStart(const Device& device) : device_(device) {}

  /// A sample begins; `spins`: not the first ones, in which it is measured how long the host takes to ask.
  void begin(bool spins) {
    spins_ = spins && device_.spin != nullptr;
    steps_ = 0;
    began_ = monotonicNow();
    spin();
  }
  /// Between two laps.
  void step() {
    if (++steps_ % kSteps == 0) spin();
  }
  /// All was asked for.
  void end() {
    if (!spins_ && steps_ > 0) perStep_ = std::min((monotonicNow() - began_) / steps_, perStep_);
  }

 private:
  /// Twice as long as the host needs for the next laps, 0.13 s at most.
  void spin() const {
    if (spins_) device_.spin(2 * kSteps * perStep_ + 100'000);
  }

  const Device& device_;
  bool spins_ = false;
  Ns steps_ = 0, began_ = 0;
  Ns perStep_ = 1'000'000;  ///< to ask for one: the shortest seen, and this at most
};

}  // namespace pw
