#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/torch/stage/stage.h"
#include "simulator/model/loss.h"
#include "simulator/model/model_graph.h"

namespace at {
class Tensor;
}

namespace pw {

/// A loss with the value of the model's graph that it reads.
struct LossSpec {
  LossKind kind = LossKind::CrossEntropy;
  ValueId output;
};
/// Throws UsageError as `outputOf` does.
[[nodiscard]] LossSpec lossSpec(const ModelGraph& graph, const Loss& loss);

/// Inputs and targets of a whole batch, cut into the microbatches of all replicas. An input is cut along its batch axis
/// (simulator/model/batch.h); one without such a dimension is passed unchanged to every microbatch. Synthetic data (no file) is drawn from
/// the seed alone: indices in the range of the embedding they select from, class labels in the range of the logits, standard normal numbers
/// elsewhere, the same batch in every step, so that the loss falls if training works. A file is a torch.save of a dict: one tensor per
/// model input under its name in the trace, and `target`, shaped like the loss's output (without its last dimension for cross_entropy).
/// Step s takes samples [s·B, (s + 1)·B), from the first again after the last; an evaluation that would so count some of them more often
/// than others is refused. The file is mapped: only the samples of a step become resident. A feed gives the tensors of a file of one batch,
/// anew in each step.
class BatchSource {
 public:
  /// `microbatchSizes`: samples of each microbatch of the whole batch (replicas × M), in order; all indices below are into it. Throws
  /// UsageError naming the tensor when the file lacks it, when its type or shape is not the model's, when it holds fewer samples than a
  /// batch, and for a loss that cannot be computed so.
  BatchSource(const ModelGraph& graph, const LossSpec& loss, std::vector<std::int64_t> microbatchSizes, std::uint64_t seed,
              const DataOptions& data);
  ~BatchSource();
  BatchSource(BatchSource&&) noexcept;
  BatchSource& operator=(BatchSource&&) = delete;
  BatchSource(const BatchSource&) = delete;
  BatchSource& operator=(const BatchSource&) = delete;

  /// Frees synthetic tensors of other inputs, and of targets without `targets`: they are not read any more.
  void keepOnly(const std::vector<ValueId>& inputs, bool targets);

  /// Throws UsageError for a class label out of range, and for a batch of a feed as the constructor for a file.
  void beginStep(int step);
  /// Of this step's batch: names, types, shapes, and a sample of a few thousand elements of each tensor. Two batches of a shuffled data set
  /// have different ones.
  [[nodiscard]] std::uint64_t digest() const;
  /// Sets the weights of the losses of this step's microbatches (of all replicas) in place of their samples, with `output:NAME`
  /// (--loss-count). Throws UsageError where none counts: PyTorch's mean of none is not a number.
  void weigh(std::vector<double> counts, double ofAll);
  /// Whether the microbatch's loss weighs nothing in the batch's. Its value is then not used, and may be a mean over nothing (NaN), whose
  /// gradient is NaN even times zero: the microbatch must have no backward from it.
  [[nodiscard]] bool weighsNothing(std::size_t microbatch) const;
  /// A copy that the model may write to. With `masked`, of the whole batch.
  [[nodiscard]] at::Tensor input(ValueId input, std::size_t microbatch) const;
  /// Loss of a microbatch, scaled so that the sum over all microbatches of the batch is the mean over the batch's samples:
  /// cross_entropy: summed over targets / all targets ≠ −100 of the batch (last dimension = classes, others flattened);
  /// mse: summed squares / elements of the batch's output; sum: summed output / samples; output: value · samples of the microbatch /
  /// samples. With `masked`, `output` is of the whole batch, and the microbatch's own samples count.
  [[nodiscard]] at::Tensor loss(const at::Tensor& output, std::size_t microbatch) const;
  /// The joint loss of the microbatches from `first` on, one output each: computed once over the concatenated outputs.
  [[nodiscard]] at::Tensor lossOver(const std::vector<at::Tensor>& outputs, std::size_t first) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The digest of the feed's batch of a step, which is checked as a stage would. Throws as BatchSource.
[[nodiscard]] std::uint64_t checkBatch(const ModelGraph& graph, const Plan& plan, const DataOptions& data, int step);

}  // namespace pw
