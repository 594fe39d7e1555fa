#include "simulator/order/improve.h"

#include <gtest/gtest.h>

#include <random>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/order_reference.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::leastTimeOfAllOrders;
using test::randomOrderProblem;
using test::simulatedOrder;

TEST(ImproveOrder, OfTheSerialOneIsMostlyTheBestOfAllAndNeverSlower) {
  int best = 0, problems = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(draw(random, 1, 2));
    OrderProblem problem = randomOrderProblem(random, ranks, loopPlacement({ranks, ranks, 2}), 2);
    if (!problem.recomputed.empty()) problem.recomputed.clear();
    const auto least = leastTimeOfAllOrders(problem, problem.costs, false);
    if (!least) continue;
    const Schedule serial = serialSchedule(problem.placement, ranks, 2);
    const Schedule better = improveOrder(problem, serial, {.seconds = 0.02});
    EXPECT_TRUE(check(better).empty());
    const Ns time = simulatedOrder(problem, problem.costs, better).value();
    EXPECT_GE(time, *least);
    EXPECT_LE(time, simulatedOrder(problem, problem.costs, serial).value());
    EXPECT_EQ(improveOrder(problem, serial, {.seconds = 0.02}), better) << "the same input gives the same order";
    ++problems;
    best += time == *least ? 1 : 0;
  }
  EXPECT_GT(problems, 30);
  EXPECT_GE(best, problems * 9 / 10);
}

TEST(ImproveOrder, MakesRoomOnARankThatNeedsTooMuchMemory) {
  OrderProblem problem;
  problem.ranks = 1;
  problem.microbatches = 6;
  const Schedule gpipe = generate("gpipe", {1, 1, 6});
  problem.placement = gpipe.placement;
  SyntheticCosts times;
  times.forward = times.backwardInput = times.backwardWeight = {2};
  problem.costs = syntheticTable(times, 1);
  problem.costs.stages.front().activationBytes = problem.costs.stages.front().freedByInput = 10;
  problem.limits = {30};
  ASSERT_FALSE(simulatedOrder(problem, problem.costs, gpipe));
  const Schedule better = improveOrder(problem, gpipe, {.seconds = 0.05});
  EXPECT_TRUE(check(better).empty());
  EXPECT_TRUE(simulatedOrder(problem, problem.costs, better));
}

TEST(ImproveOrder, StopsWhereItIsToldToAndRefusesWhatItCannotImprove) {
  std::mt19937_64 random(1);
  OrderProblem problem = randomOrderProblem(random, 2, loopPlacement({2, 2, 4}), 4);
  const Schedule serial = serialSchedule(problem.placement, 2, 4);
  const Schedule stopped = improveOrder(problem, serial, {.seconds = 5, .shouldContinue = [](double) { return false; }});
  EXPECT_TRUE(check(stopped).empty());
  const Schedule both = generate("dualpipe", {2, 2, 4});
  problem.placement = both.placement;
  EXPECT_THROW(static_cast<void>(improveOrder(problem, both)), UsageError);
}

}  // namespace
}  // namespace pw
