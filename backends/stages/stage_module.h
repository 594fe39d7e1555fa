#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"
#include "schedules/ids.h"
#include "schedules/schedule.h"
#include "simulator/model/model_graph.h"
#include "simulator/plan/optimizer.h"

namespace pw {

/// A trained parameter of a stage: its values and the gradient summed over the step so far (zeros before the first backward). Valid until
/// the next call of the stage.
struct ParameterView {
  std::string name;
  DType dtype = DType::Float32;
  Buffer value;
  Buffer gradient;
};

/// Parameters of one element type that the same ranks hold, contiguous in memory: reduced and updated together. Zeros between them let each
/// begin at a multiple of 64 bytes.
struct ParameterGroup {
  std::optional<std::size_t> shared;  ///< index into `Partition::shared`; nothing: the parameters belong to this stage only
  std::optional<std::size_t> summed;  ///< then: index into `ReplicaCuts::summed` where replicas are cut differently
  DType dtype = DType::Float32;
  Buffer values;
  Buffer gradients;
};

/// Part of a named tensor of the training state: elements [first, first + bytes / size of an element) of the flattened tensor.
struct StatePiece {
  std::string name;  ///< the model's own name of a parameter or buffer; of optimizer state `exp_avg/` and the parameter's name
  DType dtype = DType::Float32;
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  std::int64_t first = 0;
  Buffer data;
};

/// Where a stage first computed a number that is not finite.
struct NonFiniteValue {
  ActionKind kind = ActionKind::Forward;  ///< Forward, Backward, BackwardInput or BackwardWeight
  Microbatch microbatch{0};
  std::string what;  ///< `the loss is nan`, `the gradient of linear_3 is not finite`
};

enum class StepMode : std::uint8_t {
  Train,
  Evaluate,  ///< forward only: no gradients, dropout off, batch norm by its running statistics; the model's outputs are kept
};

/// One stage's computation on one rank. Indices `transfer` are those of `Partition::transfers`. Life of a microbatch: `setInput` each
/// incoming value, `forward`, `takeOutput` each outgoing one; `setOutputGradient` each, `backward` (or `backwardInput`, and
/// `backwardWeight` any time later), `takeInputGradient` each. Values move with their memory, so that two stages of one rank hand over
/// without a copy; a buffer that was taken must not be written to.
class StageModule {
 public:
  virtual ~StageModule() = default;

  /// The device that holds its buffers and measures its times.
  [[nodiscard]] virtual const Device& device() const { return hostDevice(); }

  /// Begins a step: loads its data and clears gradients. Random operators depend on (seed, step, microbatch, node) only.
  virtual void beginStep(int step, StepMode mode) = 0;

  /// Memory for the value of a transfer, or its gradient, to receive into.
  [[nodiscard]] virtual HeldBuffer allocate(std::size_t transfer, Microbatch microbatch) = 0;
  virtual void setInput(std::size_t transfer, Microbatch microbatch, HeldBuffer value) = 0;
  [[nodiscard]] virtual HeldBuffer takeOutput(std::size_t transfer, Microbatch microbatch) = 0;
  virtual void setOutputGradient(std::size_t transfer, Microbatch microbatch, HeldBuffer gradient) = 0;
  /// Zeros if nothing computed it.
  [[nodiscard]] virtual HeldBuffer takeInputGradient(std::size_t transfer, Microbatch microbatch) = 0;

  virtual void forward(Microbatch microbatch) = 0;
  /// Input and weight gradients.
  virtual void backward(Microbatch microbatch) = 0;
  /// Input gradients, and those weight gradients that cannot be deferred; the others are computed by `backwardWeight`. The sum over both is
  /// the same, bit for bit, as after `backward`s in the order of the `backwardWeight`s.
  virtual void backwardInput(Microbatch microbatch) = 0;
  virtual void backwardWeight(Microbatch microbatch) = 0;

  /// Multiplies gradients from the next backward on, so that small float16 gradients do not vanish; the loss is not scaled. Initially 1.
  virtual void setLossScale(double scale) = 0;
  /// How parameters are updated from the next step on, instead of as before: other numbers of the same optimizer. Throws UsageError for one
  /// that keeps other state. A stage without numbers of its own does nothing.
  virtual void setOptimizer(const OptimizerSpec& /*optimizer*/) {}

  /// This stage's part of the step's loss so far: summed over all stages and ranks it is the mean over the samples, uneven microbatches
  /// weighted; nothing on all stages but the last.
  [[nodiscard]] virtual std::optional<double> stepLoss() const = 0;
  /// An output of the model (index into ModelGraph::outputs) for this microbatch of an evaluation; on the last stage, if it keeps them.
  [[nodiscard]] virtual HeldBuffer takeModelOutput(std::size_t output, Microbatch microbatch) = 0;

  /// The first number of the step so far that was not finite: on the host of the values that leave the stage, and their gradients; anywhere
  /// of the loss. For use after a step whose loss or gradients are known not to be finite, as masks may be infinite. Nothing if none was
  /// seen; parameters are not checked.
  [[nodiscard]] virtual std::optional<NonFiniteValue> firstNonFinite() { return std::nullopt; }
  /// Restores the buffers from the start of the step, for a step that is skipped. May do nothing if the stage was not told to keep them.
  virtual void undoBuffers() {}

  /// The stage's own parameters first, by what replicas sum together, then shared ones by index. The same order on all ranks that hold the
  /// stage. Addresses stay for the stage's life.
  [[nodiscard]] virtual std::vector<ParameterGroup> groups() = 0;
  /// One optimizer step on elements [first, last) of a group with its gradients times `gradientScale`; keeps the optimizer's state of these
  /// elements, so a group's range must not change between steps. Counts as one step for learning rate and bias correction.
  virtual void optimizerStep(std::size_t group, std::int64_t first, std::int64_t last, double gradientScale) = 0;

  [[nodiscard]] virtual std::vector<ParameterView> parameters() = 0;
  /// What a checkpoint holds of this stage. Valid until the next call of the stage.
  [[nodiscard]] virtual std::vector<StatePiece> state() = 0;

  /// Bytes of tensors in this process, from a counting allocator: alive now, and the most since the last call of `peakBytes`.
  [[nodiscard]] virtual Bytes bytesAlive() const = 0;
  [[nodiscard]] virtual Bytes peakBytes() = 0;
};

}  // namespace pw
