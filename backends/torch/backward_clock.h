#pragma once

// Internal to the profiler: times and memory of what ran.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "backends/messages/device.h"
#include "backends/messages/head_start.h"

namespace at {
class Tensor;
}

namespace pw {

/// Measures time and memory where the model runs. Times are device timestamps, which a GPU reaches later and which can be read once the
/// device has finished: so nothing waits within a sample, and an operator's time is what the device takes for it.
struct Meter {
  const Device& device;

  [[nodiscard]] Timestamp timestamp() const { return device.timestamp(); }
  void finish() const;  ///< waits for the device
  [[nodiscard]] Ns between(Timestamp begin, Timestamp end) const { return device.timeOf(end) - device.timeOf(begin); }
  [[nodiscard]] Bytes alive() const;  ///< bytes of tensors
  [[nodiscard]] Bytes peak() const;   ///< the most since the last call
};

/// The time of a node, readable once the device has finished.
struct Sample {
  std::size_t node = 0;
  Timestamp begin, end;
};

/// Attributes the time and memory of one backward to the nodes whose functions run.
class BackwardClock {
 public:
  BackwardClock(std::size_t slots, std::size_t first, const Meter& meter, HeadStart& headStart);

  void start();
  /// Attributes what ran since the last call to the current node; `node` runs next.
  void enter(std::size_t node);

  std::vector<Sample> samples;
  std::vector<Bytes> change, peak;
  std::function<void(std::size_t node)> ended;  ///< called after what ran of a node; may be empty

 private:
  Meter meter_;
  HeadStart& headStart_;
  std::size_t current_;
  Timestamp last_;
  Bytes alive_ = 0, begin_ = 0;
};

/// Which node ran when autograd functions were numbered: those made from `sequence[i]` on, before `sequence[i + 1]`, are of
/// `nodeOfRange[i]`.
struct FunctionNumbers {
  std::vector<std::uint64_t> sequence;
  std::vector<std::size_t> nodeOfRange;
};

/// Makes the clock enter a node before each function of the backward of `loss` that belongs to it. Functions carry the sequence number they
/// were made under: so each belongs to the node that ran then. Gradient accumulation belongs to the function that ran before it. The clock
/// must outlive the loss's history.
void enterNodes(BackwardClock& clock, const at::Tensor& loss, const FunctionNumbers& made);

}  // namespace pw
