// Orders of more actions than a proof gets through, and of stages that may recompute: sound wherever the search is stopped, and the same
// with any number of threads.
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
#include "tests/support/order_reference.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

using test::draw;
using test::limitRanks;
using test::randomOrderProblem;
using test::simulatedOrder;

/// 12 × 8 × 3 actions on a V; the smaller the seed, the less memory.
OrderProblem largeProblem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  OrderProblem problem = randomOrderProblem(random, 4, wavePlacement({4, 8, 12}), 12);
  for (int r = 0; r < 4; ++r)
    problem.limits.push_back(
        draw<Bytes>(random, 100 + 20 * Bytes(static_cast<std::int64_t>(seed)), 200 + 20 * Bytes(static_cast<std::int64_t>(seed))));
  return problem;
}

OrderProblem recomputingProblem(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  OrderProblem problem = randomOrderProblem(random, 3, loopPlacement({3, 6, 5}), 5);
  limitRanks(random, problem, 4);
  for (const StageCost& stage : problem.costs.stages) problem.recomputed.push_back(recomputedCost(stage, draw<Bytes>(random, 2, 15)));
  return problem;
}

void expectSound(const OrderProblem& problem, const FoundOrder& found) {
  EXPECT_TRUE(check(found.schedule).empty());
  EXPECT_EQ(simulatedOrder(problem, found.costs, found.schedule), found.certificate.time);
  EXPECT_LE(found.certificate.lowerBound, found.certificate.time);
  EXPECT_GE(found.certificate.lowerBound, orderBound(problem));
}

/// With the share of the work that was told at each poll.
std::optional<FoundOrder> foundWith(const OrderProblem& problem, double seconds, std::size_t polls, std::vector<double>& shares) {
  shares.clear();
  return findOrder(problem,
                   {.seconds = seconds, .shouldContinue = [&](double share) { return shares.push_back(share), shares.size() < polls; }});
}

void expectSoundWhereverItStops(const OrderProblem& problem, double seconds) {
  std::vector<double> shares;
  const std::optional<FoundOrder> whole = foundWith(problem, seconds, SIZE_MAX, shares);
  ASSERT_TRUE(whole);
  expectSound(problem, *whole);
  EXPECT_TRUE(std::ranges::is_sorted(shares));
  const std::size_t all = shares.size();
  for (int part = 1; part < 6 && !whole->certificate.optimal(); ++part) {
    const std::size_t polls = std::max<std::size_t>(1, all * static_cast<std::size_t>(part) / 6);
    const std::optional<FoundOrder> found = foundWith(problem, seconds, polls, shares);
    ASSERT_TRUE(found);
    EXPECT_EQ(shares.size(), polls) << "polled after it was stopped";
    expectSound(problem, *found);
  }
}

TEST(FindLargeOrder, IsSoundWhereverItStops) {
  int far = 0, near = 0;
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const OrderProblem problem = largeProblem(seed);
    if (tooSmall(problem)) continue;
    expectSoundWhereverItStops(problem, 0.15);
    (findOrder(problem, {.seconds = 0.15})->certificate.gap() > 0.03 ? far : near) += 1;
  }
  EXPECT_GT(far, 0);
  EXPECT_GT(near, 0);
}

TEST(FindLargeOrder, IsTheSameWithSeveralThreads) {
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    const OrderProblem problem = largeProblem(seed);
    const std::optional<FoundOrder> alone = findOrder(problem, {.seconds = 0.1});
    for (const int threads : {2, 5}) EXPECT_EQ(findOrder(problem, {.seconds = 0.1, .threads = threads}), alone) << seed << " " << threads;
  }
}

TEST(FindRecomputingOrder, IsSoundWhereverItStops) {
  int recomputed = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const OrderProblem problem = recomputingProblem(seed);
    if (tooSmall(problem)) continue;
    expectSoundWhereverItStops(problem, 0.05);
    recomputed += findOrder(problem, {.seconds = 0.05})->certificate.recomputed.empty() ? 0 : 1;
  }
  EXPECT_GT(recomputed, 0);
}

/// Room for exactly one microbatch at a time with the smallest choice, which is neither none nor all: to recompute every other stage needs
/// more than it saves. One that fits is found without any work, and where the search is stopped at once.
TEST(FindRecomputingOrder, IsFoundWhereverOneFits) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OrderProblem problem = randomOrderProblem(random, 8, wavePlacement({8, 16, 16}), 16);
    for (std::size_t s = 0; s < 16; ++s) {
      StageCost& recomputed = problem.recomputed.emplace_back(recomputedCost(problem.costs.stages[s], draw<Bytes>(random, 2, 15)));
      if (s % 2 == 1) recomputed.inputPeak = recomputed.backwardPeak += 100;
    }
    std::vector<bool> even;
    for (std::size_t s = 0; s < 16; ++s) even.push_back(s % 2 == 0);
    EXPECT_EQ(smallestRecomputation(problem), even);
    const CostTable costs = withRecomputation(problem, even);
    problem.limits = compile(smallestSchedule(problem.placement, 8, 16, costs), costs).peakBytes;
    for (const bool stops : {false, true}) {
      const std::optional<FoundOrder> found =
          findOrder(problem, {.seconds = stops ? 10.0 : 1e-6, .shouldContinue = [&](double) { return !stops; }});
      ASSERT_TRUE(found) << stops;
      expectSound(problem, *found);
    }
  }
}

TEST(FindRecomputingOrder, IsTheSameWithSeveralThreads) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const OrderProblem problem = recomputingProblem(seed);
    const std::optional<FoundOrder> alone = findOrder(problem, {.seconds = 0.05});
    for (const int threads : {2, 5}) EXPECT_EQ(findOrder(problem, {.seconds = 0.05, .threads = threads}), alone) << seed << " " << threads;
  }
}

}  // namespace
}  // namespace pw
