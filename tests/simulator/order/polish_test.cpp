#include <random>
#include <string>

#include <gtest/gtest.h>

#include "simulator/order/find.h"
#include "simulator/order/polish.h"
#include "tests/support/order_reference.h"

namespace pw {
namespace {

using test::draw;
using test::leastTimeOfAllOrders;
using test::limitRanks;
using test::oneIn;
using test::randomOrderProblem;

OrderRows serialRows(const OrderModel& model, const OrderProblem& problem) {
  return rowsOf(model, problem, serialSchedule(problem.placement, problem.ranks, problem.microbatches));
}

/// From one microbatch after the other to the best, as everything is left open at last.
TEST(PolishOrder, ComesToTheBestOfAllOrdersOfAFewActions) {
  int limited = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OrderProblem problem = randomOrderProblem(random, 2, loopPlacement({2, 2, 3}), 3);
    if (oneIn(random, 2)) limitRanks(random, problem, 3);
    const OrderModel model(problem);
    if (!fitsLimits(model, serialRows(model, problem))) continue;
    limited += problem.limits.empty() ? 0 : 1;
    const OrderRows rows = polishOrder(model, serialRows(model, problem), {.seed = seed, .windows = 100'000});
    OrderTimer timer(model);
    ASSERT_TRUE(timer.run(rows));
    EXPECT_EQ(timer.objective(), leastTimeOfAllOrders(problem, problem.costs, true));
    EXPECT_TRUE(fitsLimits(model, rows));
  }
  EXPECT_GE(limited, 10);
}

TEST(PolishOrder, MakesLargerOrdersFasterAndKeepsThemWithinTheLimits) {
  int faster = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(draw(random, 2, 4));
    OrderProblem problem = randomOrderProblem(random, ranks, wavePlacement({ranks, 2 * ranks, 6}), 6);
    limitRanks(random, problem, 6);
    const OrderModel model(problem);
    const OrderRows serial = serialRows(model, problem);
    if (!fitsLimits(model, serial)) continue;
    OrderTimer timer(model);
    ASSERT_TRUE(timer.run(serial));
    const Ns before = timer.objective();
    const OrderRows rows = polishOrder(model, serial, {.seed = seed, .windows = 50'000});
    ASSERT_TRUE(timer.run(rows));
    EXPECT_LE(timer.objective(), before);
    EXPECT_TRUE(fitsLimits(model, rows));
    EXPECT_EQ(rows, polishOrder(model, serial, {.seed = seed, .windows = 50'000}));
    faster += timer.objective() < before ? 1 : 0;
  }
  EXPECT_GE(faster, 5);
}

TEST(PolishOrder, StopsWhereItIsToldAndWhereItIsEnough) {
  std::mt19937_64 random(7);
  const OrderProblem problem = randomOrderProblem(random, 3, loopPlacement({3, 3, 6}), 6);
  const OrderModel model(problem);
  const OrderRows serial = serialRows(model, problem);
  OrderTimer timer(model);
  ASSERT_TRUE(timer.run(serial));
  EXPECT_EQ(polishOrder(model, serial, {.windows = 1'000'000, .enough = timer.objective()}), serial);
  int polled = 0;
  (void)polishOrder(model, serial, {.windows = 100'000'000, .shouldContinue = [&](std::int64_t) { return ++polled < 5; }});
  EXPECT_EQ(polled, 5);
}

}  // namespace
}  // namespace pw
