#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/communicator.h"
#include "schedules/ids.h"
#include "simulator/model_graph.h"

namespace pw {

/// A trained parameter of a stage: its values and the gradient summed over the step so far (all zeros before the first backward).
/// Valid until the next call of the stage.
struct ParameterView {
  std::string name;
  DType dtype = DType::Float32;
  Buffer value;
  Buffer gradient;
};

/// One stage's computation on one rank; it owns its tensors and shows buffers. Indices `transfer` are those of
/// `Partition::transfers`. Life of a microbatch: fill the buffers of `inputBuffer`, `forward`, send those of `outputBuffer`,
/// `releaseOutputs`; fill those of `outputGradientBuffer`, `backward`, send those of `inputGradientBuffer`,
/// `releaseInputGradients`. A buffer keeps its address until it is released or, for filled ones, used.
class StageModule {
 public:
  virtual ~StageModule() = default;

  /// Begins a step: takes its data, forgets gradients. Random operators depend on (seed, step, microbatch, node) only.
  virtual void beginStep(int step) = 0;

  [[nodiscard]] virtual Buffer inputBuffer(std::size_t transfer, Microbatch microbatch) = 0;
  [[nodiscard]] virtual Buffer outputBuffer(std::size_t transfer, Microbatch microbatch) = 0;
  [[nodiscard]] virtual Buffer outputGradientBuffer(std::size_t transfer, Microbatch microbatch) = 0;
  [[nodiscard]] virtual Buffer inputGradientBuffer(std::size_t transfer, Microbatch microbatch) = 0;

  virtual void forward(Microbatch microbatch) = 0;
  /// Input and weight gradients. A gradient nobody computed is sent as zeros.
  virtual void backward(Microbatch microbatch) = 0;
  /// The sends of `outputBuffer` (or `inputGradientBuffer`) of this microbatch are done; their memory may go.
  virtual void releaseOutputs(Microbatch microbatch) = 0;
  virtual void releaseInputGradients(Microbatch microbatch) = 0;

  /// This step's loss so far: mean over the samples, uneven microbatches weighted; nothing but on the last stage.
  [[nodiscard]] virtual std::optional<double> stepLoss() const = 0;

  /// Gradient of a replicated storage (index into `Partition::replicated`); zeros where no microbatch reached it.
  [[nodiscard]] virtual Buffer replicatedGradient(std::size_t replicated) = 0;
  /// Replaces that gradient by the sum of these (one per holding stage, in stage order, so that all holders get the same bits).
  virtual void sumReplicatedGradient(std::size_t replicated, const std::vector<Buffer>& parts) = 0;

  /// One optimizer step with the gradients summed so far.
  virtual void optimizerStep() = 0;

  [[nodiscard]] virtual std::vector<ParameterView> parameters() = 0;

  /// Bytes of tensors alive now in this process, from a counting allocator.
  [[nodiscard]] virtual Bytes bytesAlive() const = 0;
};

}  // namespace pw
