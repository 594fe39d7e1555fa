#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/order/find.h"
#include "simulator/order/problem/recomputation.h"
#include "simulator/order/proof/prove.h"
#include "tests/support/order_reference.h"

namespace pw {
namespace {

using test::draw;
using test::leastTimeOfAllOrders;
using test::limitRanks;
using test::oneIn;
using test::randomOrderProblem;
using test::simulatedOrder;

constexpr OrderWork kSecond = workOf(1);

/// Two ranks, where recomputing saves memory.
OrderProblem problemWithChoices(std::mt19937_64& random, int microbatches = 2) {
  OrderProblem problem = randomOrderProblem(random, 2, loopPlacement({2, 2, microbatches}), microbatches);
  limitRanks(random, problem, microbatches);
  for (const StageCost& stage : problem.costs.stages)
    problem.recomputed.push_back(recomputedCost(stage, draw<Bytes>(random, 2, stage.activationBytes - 1)));
  return problem;
}

std::optional<Ns> leastOfAllChoices(const OrderProblem& problem) {
  std::optional<Ns> least;
  for (unsigned choice = 0; choice < 4; ++choice) {
    const CostTable costs = withRecomputation(problem, {(choice & 1) != 0, (choice & 2) != 0});
    const std::optional<Ns> time = leastTimeOfAllOrders(problem, costs, true);
    if (time && (!least || *time < *least)) least = time;
  }
  return least;
}

/// Backwards are split here: a whole one takes as long as its parts and needs no less memory.
TEST(ProveOrder, ComesToTheLeastTimeOfAllChoicesFromBothSides) {
  int limited = 0, recomputing = 0;
  for (std::uint64_t seed = 1; seed <= 120; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const OrderProblem problem = problemWithChoices(random, seed % 3 == 0 ? 3 : 2);
    if (tooSmall(problem)) continue;
    const std::optional<Ns> least = leastOfAllChoices(problem);
    if (!least) continue;
    ++limited;
    const OrderProof proof = proveOrder(problem, 0, 2 * *least, {kSecond});
    ASSERT_TRUE(proof.better);
    EXPECT_EQ(proof.better->certificate.time, *least);
    EXPECT_EQ(proof.bound, *least);
    EXPECT_TRUE(proof.better->certificate.optimal());
    EXPECT_EQ(simulatedOrder(problem, proof.better->costs, proof.better->schedule), *least);
    if (!proof.better->certificate.recomputed.empty()) ++recomputing;
    const OrderProof again = proveOrder(problem, 0, *least, {kSecond});
    EXPECT_EQ(again.bound, *least);
    EXPECT_FALSE(again.better);
    EXPECT_LE(orderBound(problem, 2 * *least, 1), *least);
  }
  EXPECT_GE(limited, 40);
  EXPECT_GE(recomputing, 10);
}

TEST(ProveOrder, NeitherRaisesNorFindsAnythingWithoutWork) {
  std::mt19937_64 random(1);
  const OrderProblem problem = randomOrderProblem(random, 4, wavePlacement({4, 8, 6}), 6);
  const OrderProof none = proveOrder(problem, 7, 10'000, {});
  EXPECT_EQ(none.bound, 7);
  EXPECT_FALSE(none.better);
  int polled = 0;
  const OrderProof stopped = proveOrder(problem, 7, 10'000, {kSecond}, [&](OrderWork) { return ++polled < 2; });
  EXPECT_EQ(polled, 2);
  EXPECT_FALSE(stopped.better);
}

TEST(ProveOrder, RaisesTheSameBoundOnAnyNumberOfThreads) {
  int raised = 0;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    OrderProblem problem = randomOrderProblem(random, 6, loopPlacement({6, 6, 16}), 16);
    limitRanks(random, problem, 4);
    ASSERT_FALSE(isSmall(OrderModel(problem)));
    const std::optional<FoundOrder> found = findOrder(problem, {.seconds = 0.02});
    if (!found) continue;
    const Ns bound = orderBound(problem), time = found->certificate.time;
    const OrderProof one = proveOrder(problem, bound, time, {kSecond / 5, 1}), two = proveOrder(problem, bound, time, {kSecond / 5, 2});
    EXPECT_EQ(one.bound, two.bound);
    EXPECT_EQ(one.work, two.work);
    EXPECT_EQ(one.better, two.better);
    if (one.bound > bound) ++raised;
  }
  EXPECT_GE(raised, 2);
}

/// Where a stage may recompute, no bound counts on its time, nor on the memory that it saves.
TEST(ProveOrder, RelaxesWhatIsOpenAndKeepsWhatIsDecided) {
  std::mt19937_64 random(3);
  OrderProblem problem = problemWithChoices(random);
  const StageCost& cost = problem.costs.stages[0];
  const StageCost open = relaxedCosts(problem, {Recomputed::Open, Recomputed::Open}).stages[0];
  EXPECT_EQ(open.backwardInput, cost.backwardInput);
  EXPECT_EQ(open.activationBytes, problem.recomputed[0].activationBytes);
  const StageCost without = relaxedCosts(problem, {Recomputed::No, Recomputed::Open}).stages[0];
  EXPECT_EQ(without.backwardInput, cost.backwardInput);
  EXPECT_EQ(without.activationBytes, cost.activationBytes);
  const StageCost with = relaxedCosts(problem, {Recomputed::Yes, Recomputed::Open}).stages[0];
  EXPECT_EQ(with.backwardInput, cost.backwardInput + cost.forward);
  EXPECT_EQ(with.activationBytes, problem.recomputed[0].activationBytes);
  EXPECT_EQ(openChoice(problem), (std::vector{Recomputed::Open, Recomputed::Open}));
  problem.recomputed[1] = problem.costs.stages[1];
  EXPECT_EQ(openChoice(problem), (std::vector{Recomputed::Open, Recomputed::No}));
}

}  // namespace
}  // namespace pw
