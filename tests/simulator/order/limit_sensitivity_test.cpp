// What limits cost, against the best of all orders with other limits.
#include "simulator/order/limit_sensitivity.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/support/order_reference.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

TEST(LimitSensitivity, IsTheTimeOfTheBestOrderWithOtherLimits) {
  int slower = 0, faster = 0, none = 0;
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OrderProblem problem = randomOrderProblem(random, 2, loopPlacement({2, 2, 3}), 3);
    limitRanks(random, problem, 3);
    const std::optional<Ns> now = leastTimeOfAllOrders(problem, problem.costs, true);
    if (!now) continue;
    const std::vector<LimitSensitivity> all = limitSensitivity(problem, *now, 0.3, {.seconds = 0.2});
    ASSERT_EQ(all.size(), 3U) << "all ranks, and each";
    for (const LimitSensitivity& one : all) {
      const auto best = [&](double factor) {
        OrderProblem other = problem;
        for (std::size_t r = 0; r < 2; ++r) {
          if (!one.rank || one.rank->index() == r)
            other.limits[r] = static_cast<Bytes>(std::floor(static_cast<double>(problem.limits[r]) * factor));
        }
        return leastTimeOfAllOrders(other, other.costs, true);
      };
      EXPECT_EQ(one.now, *now);
      EXPECT_EQ(one.more, best(1.3));
      EXPECT_EQ(one.less, best(0.7));
      faster += one.more < one.now ? 1 : 0;
      slower += one.less && *one.less > one.now ? 1 : 0;
      none += one.less ? 0 : 1;
    }
  }
  EXPECT_GT(faster, 3);
  EXPECT_GT(slower, 3);
  EXPECT_GT(none, 3);
}

TEST(LimitSensitivity, ChangesLivePairsByAtLeastOne) {
  OrderProblem problem;
  problem.ranks = 2;
  problem.microbatches = 2;
  problem.placement = loopPlacement({2, 2, 2});
  SyntheticCosts times;
  times.forward = times.backwardInput = {2};
  times.backwardWeight = {1};
  problem.costs = syntheticTable(times, 2);
  problem.liveLimits = {1, 1};
  const std::optional<Ns> one = leastTimeOfAllOrders(problem, problem.costs, true);
  OrderProblem twice = problem;
  twice.liveLimits = {2, 2};
  const std::vector<LimitSensitivity> all = limitSensitivity(problem, *one, 0.1, {.seconds = 0.2});
  EXPECT_EQ(all.front(), (LimitSensitivity{std::nullopt, *one, *leastTimeOfAllOrders(twice, twice.costs, true), std::nullopt}));
  problem.liveLimits.clear();
  EXPECT_TRUE(limitSensitivity(problem, *one, 0.1).empty()) << "there is no limit";
  EXPECT_THROW((void)limitSensitivity(problem, *one, 1), UsageError);
}

}  // namespace
}  // namespace pw::test
