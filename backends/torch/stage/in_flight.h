#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <ATen/core/Tensor.h>

#include "backends/torch/program/program.h"
#include "backends/torch/stage/parameters.h"
#include "backends/torch/stage/stage.h"

namespace pw {

/// A microbatch between its forward and its backward. Values that cross stages are keyed by transfer index.
struct InFlight {
  Microbatch microbatch{0};
  int step = 0;
  std::size_t global = 0;                      ///< of the whole batch, over all replicas
  std::int64_t samples = 0;                    ///< that it computes
  std::map<ValueId, at::Tensor> inputs;        ///< of the model, to this stage
  std::map<std::size_t, at::Tensor> received;  ///< leaves if a gradient is sent back
  std::map<std::size_t, at::Tensor> toSend;    ///< as they lie in messages, detached
  std::map<std::size_t, at::Tensor> outputs;   ///< the same values with autograd's history
  bool weighsNothing = false;                  ///< its loss in the batch's, so that it has no gradient; on the last stage
  at::Tensor lossOutput;  ///< what the loss is computed from, then perhaps the loss itself, with history; of the last stage
  std::map<std::size_t, at::Tensor> outputGradients;  ///< received
  at::Tensor lossGradient;                            ///< of `lossOutput`
  std::map<std::size_t, at::Tensor> inputGradients;   ///< to be sent
  std::map<ValueId, at::Tensor> watched;
  std::vector<at::Tensor> modelOutputs;  ///< of an evaluation
  std::vector<WeightGradient> weights;   ///< that W computes
};

/// A value as it lies in a message, and as its receiver gets it: the elements in the order in which they lie in the traced model's memory,
/// on which the numbers that random operators draw depend.
[[nodiscard]] at::Tensor asSent(const at::Tensor& tensor, const TensorMeta& meta);

/// The nodes of one stage, forward and backward, on the tensors of a microbatch in flight.
class StageProgram {
 public:
  /// `parameters` must outlive it.
  StageProgram(const ModelGraph& graph, const Plan& plan, Stage stage, const StageOptions& options, StageParameters& parameters,
               ValueId lossOutput);
  StageProgram(const StageProgram&) = delete;
  StageProgram& operator=(const StageProgram&) = delete;
  ~StageProgram() = default;

  /// Calls `look` with every operator of training forwards; see RunOptions.
  void inspect(std::function<void(const Node&, const Frame&)> look) { run_.inspect = std::move(look); }

  /// A step begins; the optimizer may have changed the weights.
  void beginStep() { lowerWeights_.refresh(); }
  /// From `inputs` and `received` to `toSend`, `outputs` and `lossOutput`; in an evaluation without history, and to `modelOutputs`.
  void forward(InFlight& inFlight, StepMode mode);
  /// From `outputGradients` and `lossGradient` to `inputGradients`, and adds to the parameters' gradients; if it `splits`, leaves the
  /// deferrable ones in `weights`. Takes the microbatch's tensors.
  void backward(InFlight& inFlight, bool splits);
  /// Shows the gradients of the microbatch's watched values, after its backward; `backward` does.
  void observeGradients(InFlight& inFlight) const;
  /// Computes the deferred weight gradients.
  void addWeightGradients(InFlight& inFlight);

  /// Transfers into and out of the stage.
  [[nodiscard]] const std::vector<std::size_t>& incoming() const { return incoming_; }
  [[nodiscard]] const std::vector<std::size_t>& outgoing() const { return outgoing_; }
  [[nodiscard]] bool isRandom() const { return program_->isRandom(); }
  [[nodiscard]] bool dependsOnData() const { return program_->dependsOnData(); }
  /// Shape and type of the loss's input, on the meta device; undefined if it has no gradient, and on all stages but the last.
  [[nodiscard]] at::Tensor lossOutputForm(std::int64_t samples) const;

 private:
  [[nodiscard]] Frame frameFor(InFlight& inFlight, bool trains) const;
  void keepOutputs(InFlight& inFlight, Frame& frame, StepMode mode) const;
  void watch(InFlight& inFlight, const Frame& frame) const;
  void observe(ValueId value, Microbatch microbatch, const at::Tensor& tensor, bool gradient) const;
  void prepareEvaluation();
  [[nodiscard]] const std::vector<std::int64_t>& symbolicFor(std::int64_t samples);

  const ModelGraph& graph_;
  const Partition& partition_;
  const StageSpec& spec_;
  const StageOptions& options_;
  StageParameters& parameters_;
  bool isLast_;
  ValueId lossOutput_;
  std::vector<std::size_t> incoming_, outgoing_;
  std::vector<bool> changedInPlace_;
  std::set<ValueId> summedInRecompute_;
  std::map<std::int64_t, std::vector<std::int64_t>> symbolic_;  // by samples
  LowerWeights lowerWeights_;
  WeightQueue queue_;
  std::optional<NodeProgram> program_, evaluation_;
  RunOptions run_;
};

}  // namespace pw
