#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backends/torch/program/weights.h"
#include "simulator/model/model_graph.h"
#include "simulator/partition/partition.h"

namespace at {
class Tensor;
}

namespace pw {

/// Tensors of one microbatch, by value index; undefined where not, or no longer, alive.
using Frame = std::vector<at::Tensor>;

/// What random operators depend on in addition to their node: results do not depend on where the model is cut, and a recompute draws the
/// same numbers without saved state.
struct RandomKey {
  std::uint64_t seed = 0;
  int step = 0;
  int microbatch = 0;
};

/// Values of all symbolic numbers of the graph under these bindings, by value index; `kUnknownNumber` (symbolic_numbers.h) for those that
/// nodes compute from data at run time.
[[nodiscard]] std::vector<std::int64_t> symbolicValues(const ModelGraph& graph, const Bindings& bindings);

/// What a run of a program needs in addition to its values.
struct RunOptions {
  const std::vector<std::int64_t>* symbolic = nullptr;
  RandomKey key;
  int device = -1;  ///< the program's
  /// Called after each operator, those of sub-graphs and of a recompute (in the backward) included, with what it read still in the frame;
  /// may be empty.
  std::function<void(const Node&, const Frame&)> inspect;
  /// Called after each node; may be empty.
  std::function<void(NodeId)> observer;
  /// Operators that benefit compute in this type (autocast); `Unknown`: each as it was traced.
  DType autocast = DType::Unknown;
};

/// How a program is prepared.
struct ProgramOptions {
  /// Values that stay in the frame after the run; all others are dropped after their last use.
  std::vector<ValueId> keep;
  /// Ranges of nodes whose forward runs again in the backward.
  std::vector<NodeRange> checkpoints;
  /// Dropout off, batch norm by its running statistics.
  bool evaluate = false;
  /// Where weight gradients go; with null every operator keeps autograd's own backward.
  const WeightQueue* weights = nullptr;
  /// By value index, where a parameter's gradient is kept: those with a `sum` may be computed separately from the input's gradient.
  std::vector<ParameterGradient> gradients;
  /// CUDA's number of the device that tensors are on; −1: the host.
  int device = -1;
  /// By value index, whether a gradient is needed (`needsGradient`); only read with `weights` or `checkpoints`.
  std::vector<bool> differentiable;
};

/// Nodes of a graph, prepared to be run one by one through the c10 dispatcher with autograd as it is set by the caller.
class NodeProgram {
 public:
  /// Prepares `nodes` (ascending); the graph must outlive the program. Throws UsageError naming node, module and source line of an operator
  /// that LibTorch does not have, or an argument that does not fit its schema.
  NodeProgram(const ModelGraph& graph, const std::vector<NodeId>& nodes, const ProgramOptions& options);
  ~NodeProgram();
  NodeProgram(NodeProgram&&) noexcept;
  NodeProgram& operator=(NodeProgram&&) = delete;
  NodeProgram(const NodeProgram&) = delete;
  NodeProgram& operator=(const NodeProgram&) = delete;

  /// Parameters (of `gradients`) whose gradient autograd accumulates for some operator; their sum must be zero at the start of a step.
  [[nodiscard]] const std::vector<ValueId>& addedByAutograd() const;

  /// Whether a node draws random numbers.
  [[nodiscard]] bool isRandom() const;

  /// Whether a number or a size is read from data while it runs (`item`, `nonzero`, `cond`): on a GPU such a program waits for the device
  /// and cannot be recorded.
  [[nodiscard]] bool dependsOnData() const;

  /// Runs all nodes. The frame must hold the values they read (parameters, buffers, constants, inputs). Throws Error naming node, module
  /// and source line when an operator fails. Backward of what it computes must come before the program or `options.symbolic` ends.
  void run(Frame& frame, const RunOptions& options) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pw
