#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "backends/messages/communicator.h"
#include "engine/step_log.h"

namespace pw {

/// Reads a clock [ns]; tests use their own clocks.
using ClockFunction = std::function<Ns()>;

/// A comparison of a peer's clock with rank 0's. `offset` = peer's − ours; 0 if it is smaller than the uncertainty of the round trip, so
/// that ranks of one host, which share a clock, get exactly 0.
struct ClockReading {
  Ns at = 0;  ///< on the peer's clock
  Ns offset = 0;
  Ns roundTrip = 0;  ///< the offset is accurate to half of this

  bool operator==(const ClockReading&) const = default;
};

/// Compares all clocks with rank 0's, each by the fastest of ten round trips (Cristian, 1989). All ranks call it at the same point; on rank
/// 0 one reading per rank (its own is zero), empty on others. Cost: ten round trips per rank, one rank after the other. The monotonic
/// clocks of two hosts count from their starts, so offsets may be weeks. Throws what the communicator throws.
[[nodiscard]] std::vector<ClockReading> compareClocks(Communicator& communicator, const ClockFunction& now = monotonicNow);

/// A time of the peer's clock on rank 0's clock. Between the readings the offset is interpolated linearly, because undisciplined clocks
/// drift apart by some 10 µs per second; outside them that of the nearer reading is used.
[[nodiscard]] Ns onOurClock(Ns time, const ClockReading& first, const ClockReading& last);

}  // namespace pw
