#pragma once

#include <algorithm>

#include "backends/messages/device.h"

namespace pw {

/// Keeps a GPU busy while the host enqueues a sample, so that the GPU never waits for the host between small operators and the wait is not
/// measured. A stream holds about a thousand calls before the host has to wait for it, so the host gets a head start of some steps at a
/// time.
class HeadStart {
 public:
  static constexpr int kSteps = 64;

  explicit HeadStart(const Device& device) : device_(device) {}

  /// A sample begins. `spins`: false for the first samples, which measure how long the host takes to enqueue.
  void begin(bool spins) {
    spins_ = spins && device_.spin != nullptr;
    steps_ = 0;
    began_ = monotonicNow();
    spin();
  }
  /// Called between two steps (enqueued operators).
  void step() {
    if (++steps_ % kSteps == 0) spin();
  }
  /// The whole sample has been enqueued.
  void end() {
    if (!spins_ && steps_ > 0) perStep_ = std::min((monotonicNow() - began_) / steps_, perStep_);
  }

 private:
  /// Keeps the device busy for twice as long as the host needs for the next steps, 0.13 s at most.
  void spin() const {
    if (spins_) device_.spin(2 * kSteps * perStep_ + 100'000);
  }

  const Device& device_;
  bool spins_ = false;
  std::int64_t steps_ = 0;
  Ns began_ = 0;
  Ns perStep_ = 1'000'000;  ///< time to enqueue one step: the shortest measured, at most this
};

}  // namespace pw
