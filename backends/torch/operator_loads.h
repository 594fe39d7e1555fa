#pragma once

// Internal to the profiler: what a process loads as operators run for the first time.

#include <cstddef>
#include <string_view>
#include <vector>

#include "backends/host/process_memory.h"
#include "simulator/costs/profile.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Watches by how much the process grows beside its tensors: mapped code and tables of libraries, which the system loads page by page as
/// they are used, and code that libraries generate. To be told of each node that ran, and of the loss as the node after the last; before
/// that, what most operators share is loaded. The graph must outlive it.
class OperatorLoads {
 public:
  explicit OperatorLoads(const ModelGraph& graph);

  /// A run of nodes begins, after one of the nodes before `finished`, forwards and backwards.
  void begin(std::size_t finished);
  void ranForward(std::size_t node);
  void ranBackward(std::size_t node);

  /// Largest first; those that fit in `atMost` together. What ran before something was loaded did without it: only later nodes with the
  /// same operator may need it. Code that is generated for one form of the operator is counted for the others, too.
  [[nodiscard]] std::vector<OperatorLoad> loads(Bytes atMost) const;

 private:
  struct Load {
    std::size_t node = 0;      ///< that ran when it came
    std::size_t neededBy = 0;  ///< by nodes from this one on
    Bytes bytes = 0;
  };

  [[nodiscard]] std::string_view operatorOf(std::size_t node) const;
  void note(std::size_t node, std::size_t neededBy);

  const ModelGraph& graph_;
  std::vector<Load> loads_;
  CodeWatch code_;
  std::size_t finished_ = 0;
  Bytes resident_ = 0;
};

}  // namespace pw
