#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "simulator/model_graph.h"

namespace at {
class Tensor;
}

namespace pw {

/// What a loss is computed from; parsed from `cross_entropy`, `mse`, `sum`, `output:NAME` (NAME: an output's
/// name, its value's name in the trace, or its index; tried in this order).
struct LossSpec {
  enum class Kind : std::uint8_t { CrossEntropy, MeanSquaredError, Sum, Output } kind = Kind::CrossEntropy;
  ValueId output;  ///< the value it reads
};
/// Throws UsageError for an unknown loss or output, listing what there is.
[[nodiscard]] LossSpec parseLoss(const ModelGraph& graph, const std::string& loss);

/// Inputs and targets of a whole batch, cut into microbatches. Synthetic data (no file) is drawn from the seed alone: indices in the
/// range of the embedding they select from, class labels in the range of the logits, standard normal numbers elsewhere, the same
/// batch in every step, so that the loss of a working training falls. A file is a torch.save of a dict: one tensor per model input
/// under its name in the trace, and `target`; step s takes samples [s·B, (s+1)·B), wrapping round.
class BatchSource {
 public:
  BatchSource(const ModelGraph& graph, const LossSpec& loss, std::vector<std::int64_t> microbatchSizes, std::uint64_t seed,
              const std::string& file);
  ~BatchSource();
  BatchSource(BatchSource&&) noexcept;

  void beginStep(int step);
  [[nodiscard]] at::Tensor input(ValueId input, std::size_t microbatch) const;
  /// Loss of a microbatch, scaled so that the sum over microbatches is the mean over the batch's samples:
  /// cross_entropy: summed over targets / all targets ≠ −100 of the batch (last dimension = classes, others flattened);
  /// mse: summed squares / elements of the batch's output; sum: summed output / samples; output: value · samples of the microbatch / samples.
  [[nodiscard]] at::Tensor loss(const at::Tensor& output, std::size_t microbatch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
