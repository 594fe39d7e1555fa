#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/generate.h"
#include "simulator/order/find.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/step/compile.h"
#include "tests/support/order_reference.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::allRows;
using test::draw;
using test::oneIn;
using test::randomOrderProblem;
using test::simulatedOrder;

/// All rows of one rank with all its stages, where a set bit of `whole` says that a stage's backwards are whole.
std::vector<std::vector<Action>> rowsOfOneRank(int stages, int microbatches, unsigned whole) {
  std::vector<Stage> all;
  for (int s = 0; s < stages; ++s) all.emplace_back(s);
  std::vector<std::vector<Action>> rows;
  std::vector<Action> row;
  std::vector<int> done(static_cast<std::size_t>(stages * microbatches), 0);
  allRows(row, done, all, microbatches, true, rows);
  for (auto& actions : rows) {
    const auto joins = [&](const Action& a) { return (whole >> a.stage.index() & 1U) != 0; };
    std::erase_if(actions, [&](const Action& a) { return a.kind == ActionKind::BackwardWeight && joins(a); });
    for (Action& action : actions) {
      if (action.kind == ActionKind::BackwardInput && joins(action)) action.kind = ActionKind::Backward;
    }
  }
  return rows;
}

/// The least peak of all orders of a rank, with its backwards whole or split stage by stage, whatever is recomputed.
Bytes leastOfAllOrders(const OrderProblem& problem) {
  const auto stages = static_cast<int>(problem.costs.stages.size());
  std::optional<Bytes> least;
  for (unsigned whole = 0; whole < 1U << static_cast<unsigned>(stages); ++whole) {
    for (auto& row : rowsOfOneRank(stages, problem.microbatches, whole)) {
      const Schedule schedule{"all", problem.microbatches, problem.placement, {std::move(row)}, false};
      if (!check(schedule).empty()) continue;
      for (unsigned again = 0; again < (problem.recomputed.empty() ? 1U : 1U << static_cast<unsigned>(stages)); ++again) {
        std::vector<bool> recomputed;
        for (int s = 0; s < stages; ++s) recomputed.push_back((again >> static_cast<unsigned>(s) & 1U) != 0);
        const Bytes peak = compile(schedule, withRecomputation(problem, recomputed)).peakBytes[0];
        least = std::min(least.value_or(peak), peak);
      }
    }
  }
  return *least;
}

OrderProblem oneRank(std::mt19937_64& random, int stages, int microbatches) {
  OrderProblem problem = randomOrderProblem(random, 1, loopPlacement({1, stages, microbatches}), microbatches);
  for (StageCost& stage : problem.costs.stages) {
    stage.addedByInput = oneIn(random, 3) ? draw<Bytes>(random, 0, 40) : 0;
    stage.forwardPeak = oneIn(random, 3) ? draw<Bytes>(random, 0, 80) : 0;
    stage.backwardPeak = oneIn(random, 2) ? draw<Bytes>(random, 0, 60) : 0;
    stage.inputPeak = oneIn(random, 2) ? draw<Bytes>(random, 0, 60) : 0;
    stage.weightPeak = oneIn(random, 2) ? draw<Bytes>(random, 0, 60) : 0;
  }
  if (oneIn(random, 3)) {
    for (const StageCost& stage : problem.costs.stages) {
      StageCost with = recomputedCost(stage, draw<Bytes>(random, 0, 20));
      if (oneIn(random, 2)) with.inputPeak += draw<Bytes>(random, 0, 30);
      if (oneIn(random, 2)) with.backwardPeak += draw<Bytes>(random, 0, 30);
      problem.recomputed.push_back(with);
    }
  }
  return problem;
}

void expectTheLeast(OrderProblem problem) {
  const Bytes least = leastOfAllOrders(problem);
  problem.limits = {least};
  EXPECT_FALSE(tooSmall(problem));
  const std::optional<FoundOrder> found = findOrder(problem, {.seconds = 0.001});
  ASSERT_TRUE(found);
  EXPECT_TRUE(check(found->schedule).empty());
  EXPECT_EQ(simulatedOrder(problem, found->costs, found->schedule), found->certificate.time);
  problem.limits = {least - 1};
  ASSERT_TRUE(tooSmall(problem));
  EXPECT_EQ(tooSmall(problem)->bytes, least);
  EXPECT_FALSE(findOrder(problem, {.seconds = 0.001}));
}

TEST(TooSmall, EqualsTheLeastMemoryOfAllOrdersOfOneMicrobatch) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    expectTheLeast(oneRank(random, static_cast<int>(draw(random, 1, seed % 10 == 0 ? 3 : 2)), 1));
  }
}

TEST(TooSmall, EqualsTheLeastMemoryOfAllOrdersOfTwoMicrobatches) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    expectTheLeast(oneRank(random, seed % 100 == 0 ? 2 : 1, 2));
  }
}

/// A whole backward of one stage and a split one of the other: 120 bytes where either way alone needs 150.
TEST(TooSmall, MixesWholeAndSplitBackwardsOfOneRank) {
  OrderProblem problem;
  problem.ranks = problem.microbatches = 1;
  problem.placement = loopPlacement({1, 2, 1});
  problem.costs = syntheticTable({{1}, {}, {1}, {1}, 0, 0, {}}, 2);
  for (StageCost& stage : problem.costs.stages) stage.activationBytes = stage.freedByInput = 50;
  problem.costs.stages[0].backwardPeak = 100;  // alone on the rank by then: 150 whole, 70 split
  problem.costs.stages[0].inputPeak = 20;
  problem.costs.stages[1].inputPeak = 50;  // beside the other's 50: 150 split, 120 whole
  problem.costs.stages[1].backwardPeak = 20;
  problem.limits = {120};
  EXPECT_FALSE(tooSmall(problem));
  EXPECT_TRUE(findOrder(problem, {.seconds = 0.001}));
  problem.limits = {119};
  ASSERT_TRUE(tooSmall(problem));
  EXPECT_EQ(tooSmall(problem)->bytes, 120);
}

}  // namespace
}  // namespace pw
