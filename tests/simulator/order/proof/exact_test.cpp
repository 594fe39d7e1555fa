#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/order/find.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/order/proof/exact.h"
#include "simulator/order/proof/windows.h"
#include "tests/support/order_reference.h"

namespace pw {
namespace {

using test::draw;
using test::leastTimeOfAllOrders;
using test::limitRanks;
using test::oneIn;
using test::randomOrderProblem;

const ExactOptions kMany{.windows = 100'000'000};

TEST(ExactOrder, FindsTheLeastTimeOfAllOrdersAndProvesIt) {
  int limited = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int microbatches = static_cast<int>(draw(random, 1, 3));  // more orders than can be tried with two stages a rank
    const Placement placement = microbatches > 1 ? loopPlacement({2, 2, microbatches}) : wavePlacement({2, 4, 1});
    OrderProblem problem = randomOrderProblem(random, 2, placement, microbatches);
    if (oneIn(random, 2)) limitRanks(random, problem, 3);
    if (oneIn(random, 4)) problem.liveLimits.assign(2, static_cast<int>(draw(random, 1, 4)));
    const OrderModel model(problem);
    const std::optional<Ns> least = leastTimeOfAllOrders(problem, problem.costs, true);
    if (!least) continue;
    if (!problem.limits.empty() || !problem.liveLimits.empty()) ++limited;
    for (const bool probes : {false, true}) {
      const ExactOptions options{.windows = kMany.windows, .probes = probes};
      Windows windows(model);
      const ExactOrder below = exactOrder(windows, *least, options);
      EXPECT_TRUE(below.rows.empty());
      EXPECT_TRUE(below.proven);
      const ExactOrder best = exactOrder(windows, *least + 1, options);
      ASSERT_FALSE(best.rows.empty());
      OrderTimer timer(model);
      ASSERT_TRUE(timer.run(best.rows));
      EXPECT_EQ(timer.objective(), *least);
      EXPECT_TRUE(fitsLimits(model, best.rows));
    }
  }
  EXPECT_GE(limited, 15);
}

/// Four stages and microbatches: more pairs than branch and bound would ever decide by chance.
TEST(ExactOrder, DecidesTheSameWithAndWithoutProbes) {
  int proven = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OrderProblem problem = randomOrderProblem(random, 3, loopPlacement({3, 3, 4}), 4);
    if (oneIn(random, 2)) limitRanks(random, problem, 3);
    const std::optional<FoundOrder> found = findOrder(problem, {.seconds = 0.3});
    if (!found || !found->certificate.optimal()) continue;
    ++proven;
    const OrderModel model(problem);
    Windows windows(model);
    for (const Ns less : {Ns(1), found->certificate.time / 50}) {
      const ExactOrder below = exactOrder(windows, found->certificate.time - less, {.windows = 2'000'000, .probes = true});
      EXPECT_TRUE(below.rows.empty()) << "another search has proven that there is none";
    }
  }
  EXPECT_GE(proven, 6);
}

/// Eight uneven stages with slow links, of which one holds few microbatches; the time lies halfway between 106,390, their bound by windows
/// alone, and 110,010, which an order takes. Branch and bound alone gets lost in as much work.
TEST(ExactOrder, ProvesMoreOfALargeModelWithProbes) {
  SyntheticCosts times;
  times.forward = {1087, 1104, 960, 974, 1065, 922, 1093, 1049};
  times.backwardInput = {803, 1162, 843, 964, 998, 964, 932, 1058};
  times.backwardWeight = {892, 892, 818, 1044, 1172, 1036, 827, 970};
  const std::vector<Ns> latency{282, 315, 227, 321, 274, 188, 150};
  const std::vector<Bytes> held{113, 80, 105, 105, 80, 85, 94, 94}, afterInput{69, 48, 70, 34, 30, 41, 49, 50};
  OrderProblem problem{24, 8,  loopPlacement({8, 8, 24}), syntheticTable(times, 8), {641, 874, 950, 1275, 1102, 341, 1297, 1479},
                       {}, {}, StepClock::Flush};
  for (MessageCost& message : problem.costs.messages) message.latency = latency[std::min(message.from, message.to).index()];
  for (std::size_t s = 0; s < 8; ++s) {
    problem.costs.stages[s].activationBytes = held[s];
    problem.costs.stages[s].freedByInput = held[s] - afterInput[s];
  }
  const OrderModel model(problem);
  Windows windows(model);
  const auto proves = [&](bool probes) { return exactOrder(windows, 108'200, {.windows = 600'000, .probes = probes}).proven; };
  EXPECT_TRUE(proves(true));
  EXPECT_FALSE(proves(false));
}

OrderProblem loopOfFour(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  return randomOrderProblem(random, 4, loopPlacement({4, 4, 6}), 6);
}

TEST(ExactOrder, ProvesNothingWhereItIsStopped) {
  const OrderModel model(loopOfFour(1));
  Windows windows(model);
  const ExactOrder cut = exactOrder(windows, 10'000, {});
  EXPECT_TRUE(cut.rows.empty());
  EXPECT_FALSE(cut.proven);
  int polled = 0;
  const ExactOrder stopped =
      exactOrder(windows, 10'000, {.windows = 100'000'000, .shouldContinue = [&](std::int64_t) { return ++polled < 3; }});
  EXPECT_FALSE(stopped.proven);
  EXPECT_EQ(polled, 3);
}

TEST(ExactOrder, ProvesNothingWhereMicrobatchesDiffer) {
  OrderProblem problem = loopOfFour(2);
  problem.costs.microbatchScale = {1, 1, 2, 1, 1, 1};
  const OrderModel model(problem);
  Windows windows(model);
  EXPECT_FALSE(exactOrder(windows, 1, kMany).proven);
}

TEST(ExactOrder, ProvesNothingWhereStagesExchangeNothing) {
  OrderProblem problem = loopOfFour(3);
  std::erase_if(problem.costs.messages, [](const MessageCost& m) { return std::min(m.from, m.to) == Stage(1); });
  const OrderModel model(problem);
  Windows windows(model);
  EXPECT_FALSE(exactOrder(windows, 1, kMany).proven);
}

/// Whatever an order does is within the windows that its own time leaves, and no action is said to precede one that it follows.
TEST(Windows, HoldWhatAnOrderDoes) {
  int orders = 0;
  for (std::uint64_t seed = 1; seed <= 80; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(draw(random, 2, 4)), microbatches = static_cast<int>(draw(random, 2, 7));
    const Placement placement =
        oneIn(random, 2) ? loopPlacement({ranks, 2 * ranks, microbatches}) : wavePlacement({ranks, 2 * ranks, microbatches});
    OrderProblem problem = randomOrderProblem(random, ranks, placement, microbatches);
    for (MessageCost& message : problem.costs.messages) message.transfer = 0;
    for (StageCost& stage : problem.costs.stages) stage.addedByInput = oneIn(random, 3) ? draw<Bytes>(random, 0, 40) : 0;
    if (oneIn(random, 3)) problem.liveLimits.assign(static_cast<std::size_t>(ranks), static_cast<int>(draw(random, 2, 6)));
    limitRanks(random, problem, 5);
    const std::optional<FoundOrder> found = findOrder(problem, {.seconds = 0.02});
    if (!found) continue;
    OrderProblem relaxed = problem;  // whole backwards count as parts that need no more
    relaxed.costs = relaxedCosts(problem, openChoice(problem));
    const OrderModel model(relaxed);
    const OrderRows rows = rowsOf(model, relaxed, found->schedule);
    OrderTimer timer(model);
    ASSERT_TRUE(timer.run(rows));
    ASSERT_TRUE(fitsLimits(model, rows));
    ++orders;
    Windows windows(model);
    ASSERT_TRUE(windows.hold(timer.objective()));
    for (const auto& row : rows) {
      if (problem.clock == StepClock::Window) {  // each rank begins at once
        EXPECT_EQ(windows.latestStart(row.front()), timer.startOf(row.front()));
      }
      for (std::size_t i = 0; i < row.size(); ++i) {
        EXPECT_LE(windows.earliestStart(row[i]), timer.startOf(row[i]));
        EXPECT_GE(windows.latestEnd(row[i]), timer.startOf(row[i]) + windows.timeOf(row[i]));
        for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(windows.precedes(row[i], row[j])) << row[i].value << " " << row[j].value;
      }
    }
  }
  EXPECT_GE(orders, 40);
}

/// Of the first stage.
ActionId forwardOf(const OrderModel& model, int microbatch) { return model.actionOf(model.forwardOf(Stage(0)), Microbatch(microbatch)); }
ActionId weightOf(const OrderModel& model, int microbatch) { return model.actionOf(model.weightOf(Stage(0)), Microbatch(microbatch)); }

/// F, I and W of 10 each, room for one of two microbatches: the second F waits for the first W, so two take 60, and no time below does.
TEST(Windows, LeaveNoTimeWhereRoomIsForOneAtATime) {
  OrderProblem problem;
  problem.ranks = 1;
  problem.microbatches = 2;
  problem.placement = loopPlacement({1, 1, 2});
  SyntheticCosts times;
  times.forward = times.backwardInput = times.backwardWeight = {10};
  problem.costs = syntheticTable(times, 1);
  problem.costs.stages[0].activationBytes = 5;
  problem.limits = {9};
  const OrderModel model(problem);
  Windows windows(model);
  EXPECT_FALSE(windows.hold(59));
  ASSERT_TRUE(windows.hold(60));
  EXPECT_EQ(windows.earliestStart(forwardOf(model, 1)), 30);
  EXPECT_TRUE(windows.precedes(weightOf(model, 0), forwardOf(model, 1)));
}

/// F leaves 2 bytes and I makes them 10 until W: three F fit before all else, though not after two I.
TEST(Windows, KnowThatAnInputBackwardMayAddMemory) {
  OrderProblem problem;
  problem.ranks = 1;
  problem.microbatches = 3;
  problem.placement = loopPlacement({1, 1, 3});
  SyntheticCosts times;
  times.forward = times.backwardInput = times.backwardWeight = {10};
  problem.costs = syntheticTable(times, 1);
  problem.costs.stages[0].activationBytes = 2;
  problem.costs.stages[0].addedByInput = 8;
  problem.limits = {14};
  const OrderModel model(problem);
  Windows windows(model);
  ASSERT_TRUE(windows.hold(1000));
  EXPECT_FALSE(windows.precedes(weightOf(model, 0), forwardOf(model, 2)));
  problem.limits = {13};  // not all of them: I of the first would make it 14
  const OrderModel less(problem);
  Windows narrower(less);
  ASSERT_TRUE(narrower.hold(1000));
  EXPECT_FALSE(narrower.precedes(weightOf(less, 0), forwardOf(less, 1)));
}

/// A decision carries over to what comes before and after: 3 after 2 after 1 leaves 1 the first third.
TEST(Windows, KeepWhatIsDecidedAndWhatFollowsFromIt) {
  OrderProblem problem;
  problem.ranks = 1;
  problem.microbatches = 1;
  problem.placement = loopPlacement({1, 3, 1});
  SyntheticCosts times;
  times.forward = times.backwardInput = {1, 1, 1};
  times.backwardWeight = {10, 10, 10};
  problem.costs = syntheticTable(times, 3);
  const OrderModel model(problem);
  Windows windows(model);
  windows.open(1000);
  ASSERT_TRUE(windows.narrow());
  const auto weight = [&](int stage) { return model.actionOf(model.weightOf(Stage(stage)), Microbatch(0)); };
  const ActionId first = weight(0), second = weight(1), third = weight(2);
  EXPECT_FALSE(windows.precedes(first, third));
  const Windows::State before = windows.state();
  ASSERT_TRUE(windows.decide(first, second));
  ASSERT_TRUE(windows.decide(second, third));
  EXPECT_TRUE(windows.precedes(first, third));
  ASSERT_TRUE(windows.narrow());
  EXPECT_EQ(windows.earliestStart(third), 26);  // 6 of F and I, then the W of 0 and 1
  windows.restore(before);
  EXPECT_FALSE(windows.precedes(first, third));
}

/// Rank 0 holds two microbatches, but while I runs, which needs another 10 bytes, only that one. So F1 starts when I0 has ended: F and I of
/// the first microbatch on both ranks to 4, F1 to 5, the other rank's F and I to 7, then I1 and W1.
TEST(Windows, KeepRoomForWhatAnActionNeedsWhileItRuns) {
  OrderProblem problem;
  problem.ranks = problem.microbatches = 2;
  problem.placement = loopPlacement({2, 2, 2});
  problem.costs = syntheticTable({{1}, {}, {1}, {1}, 0, 0, {}}, 2);
  for (StageCost& stage : problem.costs.stages) {
    stage.activationBytes = 10;
    stage.freedByInput = 0;
  }
  problem.costs.stages[0].inputPeak = 10;
  problem.limits = {20, 1'000};
  const OrderModel model(problem);
  EXPECT_FALSE(Windows(model).hold(8));
  EXPECT_TRUE(Windows(model).hold(9));
  problem.limits[0] = 30;
  const OrderModel wider(problem);
  EXPECT_TRUE(Windows(wider).hold(8));
}

}  // namespace
}  // namespace pw
