#pragma once

#include <cstdint>
#include <vector>

#include "simulator/order/problem/model.h"

namespace pw {

/// What a rank prefers of what it could do next: the action with the smallest `offset[class] + microbatch · period`.
struct GreedyRule {
  std::vector<Ns> offset;           ///< by class
  Ns period = 0;                    ///< between two microbatches
  double patience = 0;              ///< it waits for a preferred action that arrives within so many durations of what it could do at once
  bool paced = false;               ///< an F starts no earlier than its offset and period say
  std::vector<std::int32_t> ahead;  ///< by rank: at most so many pairs between their F and their I, where that lets it continue; empty: all
};

/// Builds rows in the order of time, by a rule. Keeps its working memory between calls.
///
/// An F is taken only if it fits and its rank can still finish the oldest microbatch that it holds, so no rank waits forever, and the rows
/// fit wherever one microbatch at a time does (elsewhere they are empty). Cost: linear in actions times stages on a rank.
class GreedyOrder {
 public:
  explicit GreedyOrder(const OrderModel& model);
  [[nodiscard]] const OrderRows& build(const GreedyRule& rule);

 private:
  struct RankState {
    Ns free = 0;
    Bytes held = 0;
    std::int32_t live = 0;
    std::int32_t waiting = 0;  ///< pairs between F and I
    ClassId next = kNoClass;   ///< of its next action; none: not known
    Ns start = 0;              ///< of that action
  };

  struct Option {
    ClassId actionClass;
    Ns start = 0;
  };

  [[nodiscard]] Microbatch nextOf(ClassId actionClass) const { return Microbatch(done_[actionClass.index()]); }
  [[nodiscard]] Ns readyAt(ClassId actionClass) const;
  [[nodiscard]] bool admits(Rank rank, ClassId actionClass) const;
  [[nodiscard]] bool canFinishOldest(Rank rank, ClassId forward) const;
  void choose(Rank rank);
  void perform(Rank rank);

  const OrderModel& model_;
  const GreedyRule* rule_ = nullptr;
  std::vector<std::int32_t> inputs_;  ///< by action: messages
  OrderRows rows_;
  std::vector<RankState> ranks_;
  std::vector<std::int32_t> done_;     ///< by class
  std::vector<std::int32_t> missing_;  ///< by action: messages
  std::vector<Ns> arrival_;            ///< by action
  std::vector<Ns> channelEnd_;
  std::vector<Option> options_;  ///< what a rank could do next
};

}  // namespace pw
