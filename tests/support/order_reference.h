#pragma once

#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "schedules/check.h"
#include "simulator/order/problem/problem.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"
#include "tests/support/random_costs.h"

namespace pw::test {

/// Uneven stages, links and activations; both clocks.
inline OrderProblem randomOrderProblem(std::mt19937_64& random, int ranks, const Placement& placement, int microbatches) {
  OrderProblem problem;
  problem.ranks = ranks;
  problem.microbatches = microbatches;
  problem.placement = placement;
  SyntheticCosts times;
  const int stages = static_cast<int>(placement.stages());
  for (auto* list : {&times.forward, &times.backwardInput, &times.backwardWeight}) {
    for (int s = 0; s < stages; ++s) list->push_back(draw<Ns>(random, list == &times.backwardWeight ? Ns{0} : Ns{1}, 12));
  }
  problem.costs = syntheticTable(times, stages);
  for (MessageCost& message : problem.costs.messages) {
    message.latency = draw<Ns>(random, 0, 8);
    message.transfer = oneIn(random, 3) ? draw<Ns>(random, 0, 5) : 0;
  }
  for (StageCost& stage : problem.costs.stages) {
    stage.activationBytes = draw<Bytes>(random, 20, 40);
    stage.freedByInput = oneIn(random, 2) ? draw<Bytes>(random, 0, 20) : 0;
    stage.inputPeak = stage.backwardPeak = oneIn(random, 3) ? draw<Bytes>(random, 0, 10) : 0;
  }
  problem.clock = oneIn(random, 2) ? StepClock::Window : StepClock::Flush;
  return problem;
}

inline void limitRanks(std::mt19937_64& random, OrderProblem& problem, int most) {
  problem.limits.reserve(static_cast<std::size_t>(problem.ranks));
  for (int r = 0; r < problem.ranks; ++r) problem.limits.push_back(draw<Bytes>(random, 25, 45 * Bytes(most)));
}

inline Ns orderTimeOf(const OrderProblem& problem, const Program& program, const Times& times) {
  return problem.clock == StepClock::Flush ? makespanOf(program, program.duration, times) : windowOf(program, program.duration, times);
}

/// The time by the simulator; nothing where it exceeds a limit.
inline std::optional<Ns> simulatedOrder(const OrderProblem& problem, const CostTable& costs, const Schedule& schedule) {
  const Program program = compile(schedule, costs);
  for (std::size_t r = 0; r < problem.limits.size(); ++r) {
    if (program.peakBytes[r] > problem.limits[r]) return std::nullopt;
  }
  for (std::size_t r = 0; r < problem.liveLimits.size(); ++r) {
    if (program.peakLive[r] > problem.liveLimits[r]) return std::nullopt;
  }
  Times times;
  execute(program, times);
  return orderTimeOf(problem, program, times);
}

/// All orders of one rank's actions that keep F before I before W; `inOrder`: and the microbatches of a kind in order.
inline void allRows(std::vector<Action>& row, std::vector<int>& done, const std::vector<Stage>& stages, int microbatches, bool inOrder,
                    std::vector<std::vector<Action>>& rows) {
  constexpr ActionKind kKinds[] = {ActionKind::Forward, ActionKind::BackwardInput, ActionKind::BackwardWeight};
  if (row.size() == done.size() * 3) rows.push_back(row);
  for (std::size_t pair = 0; pair < done.size(); ++pair) {
    const std::size_t m = pair % static_cast<std::size_t>(microbatches);
    if (done[pair] == 3 || (inOrder && m > 0 && done[pair - 1] <= done[pair])) continue;
    row.push_back({stages[pair / static_cast<std::size_t>(microbatches)], kKinds[done[pair]], Microbatch(m)});
    ++done[pair];
    allRows(row, done, stages, microbatches, inOrder, rows);
    --done[pair];
    row.pop_back();
  }
}

/// The least time over all orders on all ranks, one after the other; nothing where none fits.
inline std::optional<Ns> leastTimeOfAllOrders(const OrderProblem& problem, const CostTable& costs, bool inOrder) {
  std::vector<std::vector<std::vector<Action>>> rows(static_cast<std::size_t>(problem.ranks));
  for (std::size_t r = 0; r < rows.size(); ++r) {
    std::vector<Stage> stages;
    for (std::size_t s = 0; s < problem.placement.stages(); ++s) {
      if (problem.placement.rankOfStage[s].index() == r) stages.emplace_back(s);
    }
    std::vector<Action> row;
    std::vector<int> done(stages.size() * static_cast<std::size_t>(problem.microbatches), 0);
    allRows(row, done, stages, problem.microbatches, inOrder, rows[r]);
  }
  std::optional<Ns> best;
  Schedule schedule{"all", problem.microbatches, problem.placement, std::vector<std::vector<Action>>(rows.size()), false};
  const std::function<void(std::size_t)> choose = [&](std::size_t rank) {
    if (rank < rows.size()) {
      for (const auto& row : rows[rank]) {
        schedule.rows[rank] = row;
        choose(rank + 1);
      }
      return;
    }
    if (!check(schedule).empty()) return;
    const std::optional<Ns> time = simulatedOrder(problem, costs, schedule);
    if (time && (!best || *time < *best)) best = time;
  };
  choose(0);
  return best;
}

}  // namespace pw::test
