#pragma once

#include <compare>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "simulator/step/compile.h"

namespace pw {

/// Two ranks that exchange messages, in both directions.
struct RankPair {
  Rank low, high;

  auto operator<=>(const RankPair&) const = default;
};

/// How much the makespan depends on one stage's compute, or on the messages of one pair of ranks.
struct Sensitivity {
  std::variant<Stage, RankPair> of;
  Ns onPath = 0;  ///< of the critical path: per percent of change the makespan changes by this / 100, until another path is longest
  Ns faster = 0;  ///< the makespan where it takes `change` less
  Ns slower = 0;  ///< and more
  [[nodiscard]] Ns span() const { return slower - faster; }

  bool operator==(const Sensitivity&) const = default;
};

/// How much the time of a schedule depends on a memory limit, where its order or what it recomputes is made for the limit.
struct LimitSensitivity {
  std::optional<Rank> rank;  ///< whose limit; nothing: of all ranks together
  Ns now = 0;
  Ns more = 0;             ///< with `change` more memory; never above `now`: what fits still fits
  std::optional<Ns> less;  ///< with less; never below `now`; nothing: nothing fits

  bool operator==(const LimitSensitivity&) const = default;
};

struct SensitivityReport {
  Ns makespan = 0;
  double change = 0;
  std::vector<Sensitivity> all;               ///< largest span first; ties: longest on the path, stages before links, in their order
  std::vector<LimitSensitivity> limits = {};  ///< not of `sensitivityOf`, which keeps the order of the actions

  bool operator==(const SensitivityReport&) const = default;
};

/// Throws UsageError unless 0 < change < 1.
void requireChange(double change);

/// Of every stage (F, B, I, W and its slots) and, where a stage has one rank, every pair of ranks with a message that takes time (latency
/// and transfer): the makespan simulated again with a `change` of 0 < change < 1, and the derivative along the longest path, with
/// the waits in channels that it passes.
/// Throws as `compile`, and UsageError for another change. Cost: two passes over the schedule for each of them.
[[nodiscard]] SensitivityReport sensitivityOf(const Schedule& schedule, const CostTable& costs, Sending sending = Sending::Overlapped,
                                              double change = 0.1);

/// `stage 2`, `link 1–2`.
[[nodiscard]] std::string nameOf(const std::variant<Stage, RankPair>& of);

}  // namespace pw
