#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "backends/messages/device.h"
#include "engine/step_log.h"

namespace pw {

/// Writes into a step's log what happened at timestamps of a device. On the host these are times at once; on a GPU they become times when
/// it has done the step's work, and until then the log has 0 in their place.
class StepTimes {
 public:
  /// The device must outlive this.
  explicit StepTimes(const Device& device) : device_(device) {}

  /// Begins a step: timestamps of the step before are no longer valid.
  void begin();
  void add(StepLog& log, Span span, Timestamp start, Timestamp end);
  void add(StepLog& log, Rank rank, Timestamp moment, Bytes memory);
  /// A span with the memory at its start, the most within, which is shown at its middle, and the memory at its end.
  void add(StepLog& log, const Span& span, Timestamp start, Timestamp end, const std::array<Bytes, 3>& memory);
  /// Sets the times that are left, once the device has finished.
  void settle(StepLog& log);

 private:
  struct Pending {
    std::size_t place = 0;  ///< in the log
    Timestamp start, end;   ///< samples: equal
  };
  [[nodiscard]] bool isHost() const { return device_.index < 0; }

  const Device& device_;
  std::vector<Pending> spans_, samples_;
  std::vector<std::pair<std::size_t, std::size_t>> within_;  ///< a span, and the first of the three samples of its memory
};

}  // namespace pw
