#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "simulator/model_graph.h"

namespace at {
class Tensor;
}

namespace pw {

/// Tensors of one microbatch, by value index; undefined where not, or no longer, alive.
using Frame = std::vector<at::Tensor>;

/// What random operators depend on, beside their node: so results do not depend on where the model is cut, and a recompute
/// draws the same numbers without saved state.
struct RandomKey {
  std::uint64_t seed = 0;
  int step = 0;
  int microbatch = 0;
};

/// Values of all symbolic numbers of the graph under these bindings, by value index; a node that reads one
/// that cannot be evaluated (a data-dependent size) fails with a sentence when it runs.
[[nodiscard]] std::vector<std::int64_t> symbolicValues(const ModelGraph& graph, const Bindings& bindings);

struct ProgramStep;

/// Nodes of a graph, prepared to be run one by one through the c10 dispatcher with autograd as it is set by the caller.
class NodeProgram {
 public:
  /// Prepares `nodes` (ascending); the graph must outlive the program. `keep`: values that stay in the frame after the run; all others are dropped after their last use.
  /// Throws UsageError naming node, module and source line of an operator that LibTorch does not have, or an argument that does
  /// not fit its schema.
  NodeProgram(const ModelGraph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& keep);
  ~NodeProgram();
  NodeProgram(NodeProgram&&) noexcept;

  /// Runs all nodes. The frame must hold the values they read (parameters, buffers, constants, inputs). `observer`, if set, is called
  /// after each node. Throws Error naming node, module and source line when an operator fails.
  void run(Frame& frame, const std::vector<std::int64_t>& symbolic, const RandomKey& key,
           const std::function<void(NodeId)>& observer) const;

 private:
  std::vector<ProgramStep> steps_;
};

}  // namespace pw
