#pragma once

#include <cmath>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw::test {

/// When every action and message of a schedule starts, by a slow and simple method: the schedule as a graph of "not before" edges, relaxed
/// until nothing moves. Shares nothing with the simulator but the rules written in its header.
class LongestPath {
 public:
  LongestPath(const Schedule& schedule, const CostTable& costs) : costs_(costs) {
    for (const auto& row : schedule.rows) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        node(row[i]);
        if (i > 0) edges_.push_back({node(row[i - 1]), node(row[i]), duration(row[i - 1])});
      }
    }
    // Row by row, so that the messages of a channel come in the order in which they are sent.
    std::map<std::pair<Rank, Rank>, std::pair<std::size_t, Ns>> lastOnChannel;
    for (const auto& row : schedule.rows) {
      for (const Action& action : row) {
        for (std::size_t i = 0; i < costs.messages.size(); ++i) {
          const MessageCost& message = costs.messages[i];
          if (message.from != action.stage || !leavesWith(message, action.kind)) continue;
          const std::size_t to = node(receiver(message, action));
          const std::pair channel(schedule.placement.rankOfStage[message.from.index()], schedule.placement.rankOfStage[message.to.index()]);
          if (channel.first == channel.second) {
            edges_.push_back({node(action), to, duration(action)});
            continue;
          }
          const std::size_t flight = starts_.size();
          starts_.push_back(0);
          messageNodes_[{i, action.microbatch}] = flight;
          const Ns transfer = scaled(message.transfer, action.microbatch);
          edges_.push_back({node(action), flight, duration(action)});
          edges_.push_back({flight, to, transfer + message.latency});
          const auto before = lastOnChannel.find(channel);
          if (before != lastOnChannel.end()) edges_.push_back({before->second.first, flight, before->second.second});
          lastOnChannel[channel] = {flight, transfer};
        }
      }
    }
    for (bool moved = true; moved;) {
      moved = false;
      for (const auto& [from, to, delay] : edges_) {
        if (starts_[from] + delay <= starts_[to]) continue;
        starts_[to] = starts_[from] + delay;
        moved = true;
      }
    }
  }

  [[nodiscard]] Ns start(const Action& action) const { return starts_[actionNodes_.at(action)]; }
  [[nodiscard]] Ns end(const Action& action) const { return start(action) + duration(action); }

  /// (start, end) of every message from a rank to another, sorted.
  [[nodiscard]] std::multimap<Ns, Ns> messages() const {
    std::multimap<Ns, Ns> result;
    for (const auto& [key, flight] : messageNodes_) {
      const MessageCost& message = costs_.messages[key.first];
      result.emplace(starts_[flight], starts_[flight] + scaled(message.transfer, key.second) + message.latency);
    }
    return result;
  }

 private:
  struct Edge {
    std::size_t from;
    std::size_t to;
    Ns delay;
  };

  std::size_t node(const Action& action) {
    const auto [at, added] = actionNodes_.emplace(action, starts_.size());
    if (added) starts_.push_back(0);
    return at->second;
  }
  [[nodiscard]] Ns scaled(Ns time, Microbatch m) const {
    return costs_.microbatchScale.empty() ? time : Ns(std::llround(static_cast<double>(time) * costs_.microbatchScale[m.index()]));
  }
  [[nodiscard]] Ns duration(const Action& action) const {
    const StageCost& cost = costs_.stages[action.stage.index()];
    if (action.kind == ActionKind::Forward) return scaled(cost.forward, action.microbatch);
    if (action.kind == ActionKind::Backward) return scaled(cost.backward, action.microbatch);
    return scaled(action.kind == ActionKind::BackwardInput ? cost.backwardInput : cost.backwardWeight, action.microbatch);
  }
  static bool leavesWith(const MessageCost& message, ActionKind kind) {
    if (!message.backward) return kind == ActionKind::Forward;
    return kind == ActionKind::Backward || kind == ActionKind::BackwardInput;
  }
  static Action receiver(const MessageCost& message, const Action& sender) { return {message.to, sender.kind, sender.microbatch}; }

  const CostTable& costs_;
  std::vector<Ns> starts_;
  std::vector<Edge> edges_;
  std::map<Action, std::size_t> actionNodes_;
  std::map<std::pair<std::size_t, Microbatch>, std::size_t> messageNodes_;
};

}  // namespace pw::test
