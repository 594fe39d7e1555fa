#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/plan/optimizer.h"

namespace at {
class Tensor;
}

namespace pw {

/// Elements, from the end of the piece before to `last`, of a group of parameters.
struct OptimizerPiece {
  std::int64_t last = 0;
  std::size_t group = 0;  ///< see OptimizerSpec::groups
};

/// Optimizer over flat tensors (torch's fused kernels; for 16-bit numbers torch.optim's plain operators): elementwise, so the layout and
/// sharding of parameters do not affect results, which are bit-identical if shards begin at multiples of 64 bytes. The state of an element
/// has the parameter's own type, as torch.optim keeps it. Throws UsageError for values that are not floating point.
class Optimizer {
 public:
  /// `updates`: that the parameters have had before, in the training that this one resumes.
  explicit Optimizer(const OptimizerSpec& spec, int updates = 0);
  ~Optimizer();
  /// Updates `values` by `gradients` (same size and type, one dimension, contiguous, same memory in every step) with the learning rate of
  /// `step` (from 0). `key` names the pair: state belongs to it, and Adam's bias correction counts its updates, since steps without one,
  /// as of gradients that are not finite, leave no trace in the state. Gradients are multiplied by
  /// `gradientScale` in place. One pass over memory, also where 1 / gradientScale is an integer (a mean over ranks): then each is divided.
  /// `pieces` cover the values where the optimizer has groups.
  void step(std::size_t key, at::Tensor& values, at::Tensor& gradients, int step, double gradientScale,
            const std::vector<OptimizerPiece>& pieces = {});
  /// Other numbers from the next step on. Throws UsageError for an optimizer that keeps other state.
  void change(const OptimizerSpec& spec);
  /// State tensors of a key by torch's names (`exp_avg`, `exp_avg_sq`, `square_avg`, `momentum_buffer`), each as large as `values`; made
  /// with zeros, to be filled from a checkpoint, when there are none yet. Empty for plain SGD.
  [[nodiscard]] std::vector<std::pair<std::string, at::Tensor>> state(std::size_t key, const at::Tensor& values);
  /// Drops the state of a key, whose values are others from now on.
  void forget(std::size_t key);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
