#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "backends/torch/program/program.h"
#include "simulator/model/loss_count.h"

namespace at {
class Tensor;
}

namespace pw {

/// Counts for `--loss-count`, on the host.
class LossCounter {
 public:
  /// The graph must outlive it. Throws UsageError for operators that cannot run.
  LossCounter(const ModelGraph& graph, LossCount count);
  /// Inputs that it needs.
  [[nodiscard]] const std::vector<ValueId>& inputs() const { return inputs_; }
  /// The count of a microbatch of so many samples with these inputs. Throws UsageError where it is negative or not finite.
  [[nodiscard]] double count(const std::map<ValueId, at::Tensor>& inputs, std::int64_t samples);
  /// The count of all that were counted since the last call, together.
  [[nodiscard]] double countOfAll();

 private:
  const ModelGraph& graph_;
  LossCount count_;
  std::vector<ValueId> inputs_;
  NodeProgram program_;
  std::vector<NodeId> after_;            ///< nodes that compute the count from `LossCount::sum`
  std::map<ValueId, at::Tensor> ofAll_;  ///< what they read, where it is a tensor: the sum that of all microbatches
  std::int64_t samples_ = 0;             ///< of all that were counted
  double all_ = 0;                       ///< their count without `LossCount::sum`
};

}  // namespace pw
