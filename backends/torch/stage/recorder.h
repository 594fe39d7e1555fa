#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/torch/stage/in_flight.h"

namespace pw {

/// A stage's actions, recorded once and launched as a whole where the device can do that (Device::record): a host takes longer to ask for
/// many small operators than a GPU takes to do them. The first two training steps are done operator by operator; they warm caches up and
/// show how many microbatches are in flight at a time, of those with B and of those with I and W. Then, before the third begins, each of
/// these gets a recording: F, and B or I and W, on tensors that stay where they are. What enters and leaves is copied, the loss stays
/// outside. So a stage's memory is from then on what its most microbatches in flight need.
///
/// Not for stages that draw random numbers, whose seeds are numbers of the host. A microbatch of another size than the first, or one more
/// in flight than there are recordings, is done operator by operator.
class Recorder {
 public:
  /// All must outlive it. `tell` hears, once, why a stage is not recorded though the device can.
  Recorder(StageProgram& program, StageParameters& parameters, const Device& device, const StageOptions& options, std::size_t microbatches);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Of a training step: nothing is in flight.
  void beginStep();
  /// As the functions of StageProgram, by a recording; false where the caller must do it itself. `requiresGradient`: whether `lossOutput`
  /// does.
  [[nodiscard]] bool forward(InFlight& inFlight);
  [[nodiscard]] bool backward(InFlight& inFlight, bool splits);
  [[nodiscard]] bool addWeightGradients(InFlight& inFlight);

 private:
  struct Recording;
  enum class Phase : std::uint8_t { Off, Learns, Counts, Launches };

  void record();
  [[nodiscard]] std::unique_ptr<Recording> recorded(bool splits);
  void learn(const InFlight& inFlight, bool splits);
  void end(Microbatch microbatch);
  [[nodiscard]] std::int64_t bytesOutside() const;

  StageProgram& program_;
  StageParameters& parameters_;
  const Device& device_;
  std::function<void(const std::string&)> tell_;
  bool observed_;
  Phase phase_;
  std::vector<bool> splits_;                        // by microbatch: whether its backward is I and W
  std::array<std::size_t, 2> inFlight_{}, most_{};  // of those that do not, and that do
  std::unique_ptr<Recording> form_;                 // shapes and types of what enters
  std::vector<std::unique_ptr<Recording>> recordings_;
  std::vector<Recording*> of_;  // by microbatch; null: done operator by operator
};

}  // namespace pw
