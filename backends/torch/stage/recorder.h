#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/torch/stage/in_flight.h"

namespace pw {

/// A stage's actions, recorded once and launched as a whole if the device supports it (Device::record), because enqueueing many small
/// operators takes a host longer than a GPU needs to execute them. The first two training steps run operator by operator; they warm up
/// caches and show how many microbatches are in flight at a time, of those with B and of those with I and W. Before the third step, each of
/// these gets a recording: F, and B or I and W, on tensors with fixed addresses. Inputs and outputs are copied; the loss is not recorded.
/// From then on a stage's memory is what its maximum number of microbatches in flight needs.
///
/// Not for stages that draw random numbers, because their seeds are set on the host. A microbatch of a different size from the first, or
/// one for which no recording is free, runs operator by operator.
class Recorder {
 public:
  /// All arguments must outlive it. `tell` is called once with the reason if a stage is not recorded although the device can.
  Recorder(StageProgram& program, StageParameters& parameters, const Device& device, const StageOptions& options, std::size_t microbatches);
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Begins a training step: no microbatch is in flight.
  void beginStep();
  /// As the functions of StageProgram, by a recording; false if the caller must do it itself.
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
