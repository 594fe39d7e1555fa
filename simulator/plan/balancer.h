#pragma once

#include <vector>

#include "simulator/plan/partition.h"
#include "simulator/plan/split.h"

namespace pw {

/// `balancedSplits` of one model for several numbers of stages. Keeps references to graph and profile.
class Balancer {
 public:
  Balancer(const ModelGraph& graph, const Profile& profile);
  /// Cost: O(stages · split points).
  [[nodiscard]] std::vector<NodeId> begins(int stages, Balance by, const std::vector<double>& slowness = {}) const;

 private:
  const ModelGraph& graph_;
  const Profile& profile_;
  std::vector<std::size_t> points_;  ///< split points
  std::vector<std::size_t> free_;    ///< all nodes where a stage may begin
  std::vector<Bytes> crossing_;      ///< by node: bytes that would be sent if a stage began there
};

}  // namespace pw
