#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "simulator/step/cost_table.h"
#include "simulator/step/lanes.h"

namespace pw {

/// Messages of the cost table by one of their ends (stage and direction).
class MessagesByEnd {
 public:
  MessagesByEnd(const CostTable& costs, Stage MessageCost::*side) : first_(2 * costs.stages.size() + 1, 0), order_(costs.messages.size()) {
    for (const MessageCost& m : costs.messages) ++first_[endOf(m.*side, m.backward) + 1];
    for (std::size_t e = 1; e < first_.size(); ++e) first_[e] += first_[e - 1];
    std::vector<std::size_t> next = first_;
    for (std::size_t i = 0; i < order_.size(); ++i) order_[next[endOf(costs.messages[i].*side, costs.messages[i].backward)]++] = i;
  }
  [[nodiscard]] std::span<const std::size_t> at(const Action& a) const {
    const std::size_t end = endOf(a.stage, isBackward(a.kind));
    return std::span(order_).subspan(first_[end], first_[end + 1] - first_[end]);
  }

 private:
  std::vector<std::size_t> first_, order_;
};

}  // namespace pw
