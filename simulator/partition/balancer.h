#pragma once

#include <map>
#include <optional>
#include <vector>

#include "schedules/answer.h"
#include "simulator/costs/topology.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"

namespace pw {

/// What a stage may hold at once. More nodes never hold less.
struct StageRoom {
  Bytes bytes = 0;       ///< 0: any number
  int parameters = 1;    ///< how often its parameters are held: with gradients and optimizer state
  int microbatches = 1;  ///< of whose activations it keeps what its nodes save

  bool operator==(const StageRoom&) const = default;
};

/// `balancedSplits` of one model for several numbers of stages. Keeps references to graph and profile.
class Balancer {
 public:
  Balancer(const ModelGraph& graph, const Profile& profile);
  /// Or why there are none: the model has too few places to split at. Cost: O(stages · split points).
  Answer<std::vector<NodeId>> begins(int stages, Balance by, const StageSpeeds& speeds = {}) const;
  /// By Time, of all cuts at split points whose stages have room, one for each stage; nothing where none has. Exact in this count of
  /// memory, which knows neither messages nor what an action needs while it runs. Cost: forty times as above.
  [[nodiscard]] std::optional<std::vector<NodeId>> beginsWithin(const std::vector<StageRoom>& rooms, const StageSpeeds& speeds = {}) const;

 private:
  const ModelGraph& graph_;
  const Profile& profile_;
  SplitPlaces places_;
  // Summed before each node.
  std::map<int, std::vector<double>> times_;  ///< by `RankSpeed::costsOf`
  std::vector<Bytes> parameters_, saved_;
};

}  // namespace pw
