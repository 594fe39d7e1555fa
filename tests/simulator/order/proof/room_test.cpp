#include "simulator/order/proof/room.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "simulator/order/proof/windows.h"
#include "tests/support/order_reference.h"

namespace pw {
namespace {

using test::draw;
using test::oneIn;
using test::randomOrderProblem;

/// A random order that keeps what every order has: the microbatches of a class in their order, F down the stages, I up, W after I.
OrderRows randomRows(std::mt19937_64& random, const OrderModel& model) {
  std::vector<std::int32_t> done(model.classes.size(), 0);
  const auto mayRun = [&](ClassId c) {
    const Stage stage = model.stageOf(c);
    const std::int32_t next = done[c.index()];
    if (next == model.microbatches) return false;
    const auto isDone = [&](ClassId other) { return done[other.index()] > next; };
    if (model.isForward(c)) return stage.value == 0 || isDone(ClassId(c.value - 1));
    if (model.kindOf(c) == ActionKind::BackwardWeight) return isDone(model.inputOf(stage));
    return isDone(model.forwardOf(stage)) && (stage.value + 1 == model.stages || isDone(ClassId(c.value + 1)));
  };
  OrderRows rows(static_cast<std::size_t>(model.ranks));
  for (std::size_t i = 0; i < model.actions(); ++i) {
    std::vector<ClassId> ready;
    for (std::size_t c = 0; c < model.classes.size(); ++c) {
      if (mayRun(ClassId(c))) ready.emplace_back(c);
    }
    const ClassId c = ready[static_cast<std::size_t>(draw(random, 0, static_cast<int>(ready.size()) - 1))];
    rows[model.classes[c.index()].rank.index()].push_back(model.actionOf(c, Microbatch(done[c.index()]++)));
  }
  return rows;
}

/// What a rank's row holds at most, summed action by action.
Bytes peakOf(const OrderModel& model, const std::vector<ActionId>& row) {
  Bytes held = 0, peak = 0;
  for (const ActionId action : row) {
    const OrderModel::ActionClass& of = model.classes[model.classOf(action).index()];
    held += of.use.gain;
    peak = std::max(peak, held + of.use.peak);
    held -= of.use.loss;
  }
  return peak;
}

/// Nothing is said of two actions that these rows do otherwise.
void expectPossible(const Windows& windows, const OrderRows& rows) {
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) EXPECT_FALSE(windows.precedes(row[i], row[j])) << row[i].value << " " << row[j].value;
    }
  }
}

/// Limits that an order just keeps, a time that it just takes, and some of its own pairs decided: it is never refuted.
TEST(KeepRoom, NeverExcludesAnOrderThatFits) {
  for (std::uint64_t seed = 1; seed <= 1'000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const int ranks = static_cast<int>(draw(random, 1, 2)), chunks = static_cast<int>(draw(random, 1, 3)),
              microbatches = static_cast<int>(draw(random, 2, 5));
    OrderProblem problem = randomOrderProblem(random, ranks, wavePlacement({ranks, ranks * chunks, microbatches}), microbatches);
    problem.clock = StepClock::Flush;
    for (MessageCost& message : problem.costs.messages) message.transfer = 0;
    for (StageCost& stage : problem.costs.stages) {
      if (oneIn(random, 2)) stage.addedByInput = draw<Bytes>(random, 0, 80);
      if (oneIn(random, 2)) stage.inputPeak = draw<Bytes>(random, 0, 20);
      if (oneIn(random, 2)) stage.weightPeak = draw<Bytes>(random, 0, 20);
    }
    OrderModel model(problem);
    const OrderRows rows = randomRows(random, model);
    for (std::size_t r = 0; r < rows.size(); ++r) model.limit[r] = peakOf(model, rows[r]);
    OrderTimer timer(model);
    ASSERT_TRUE(timer.run(rows));
    Windows windows(model);
    windows.open(timer.objective() * (oneIn(random, 2) ? 1 : 4));
    ASSERT_TRUE(windows.narrow());
    for (int decisions = static_cast<int>(draw(random, 0, 30)); decisions-- > 0;) {
      const auto& row = rows[static_cast<std::size_t>(draw(random, 0, ranks - 1))];
      const auto second = static_cast<std::size_t>(draw(random, 1, static_cast<int>(row.size()) - 1));
      const auto first = static_cast<std::size_t>(draw(random, 0, static_cast<int>(second) - 1));
      ASSERT_TRUE(windows.decide(row[first], row[second]));
      ASSERT_TRUE(windows.narrow());
    }
    expectPossible(windows, rows);
    if (HasFailure()) return;
  }
}

/// Two stages of a rank, two microbatches. W of stage 1 runs with 4 + 3 bytes of its own, W of stage 0 holds 3: of 9 bytes they do not find
/// room together, so with I0.0 before W1.0 also W0.0 is, and with it F1.1. That one then holds 1 byte while W1.0 runs, and not the 4 that
/// its W needs, which it holds when I0.1 runs: that is later.
TEST(KeepRoom, CountsWhatIsHeldWhenAnActionRunsAndNotWhenAnotherDoes) {
  OrderProblem problem;
  problem.ranks = 1;
  problem.microbatches = 2;
  problem.placement = loopPlacement({1, 2, 2});
  problem.costs = syntheticTable({{1}, {}, {1}, {1}, 0, 0, {}}, 2);
  std::vector<StageCost>& stages = problem.costs.stages;
  stages[0].activationBytes = stages[1].activationBytes = 1;
  stages[0].addedByInput = 2;
  stages[1].addedByInput = 3;
  stages[0].inputPeak = 1;
  stages[1].weightPeak = 3;
  problem.limits = {9};
  const OrderModel model(problem);
  enum Kind : std::uint8_t { F, I, W };
  const auto at = [&](Kind kind, int stage, int microbatch) {
    const Stage s(stage);
    return model.actionOf(kind == F ? model.forwardOf(s) : kind == I ? model.inputOf(s) : model.weightOf(s), Microbatch(microbatch));
  };
  const OrderRows fits{{at(F, 0, 0), at(F, 1, 0), at(I, 1, 0), at(I, 0, 0), at(F, 0, 1), at(F, 1, 1), at(W, 0, 0), at(W, 1, 0), at(I, 1, 1),
                        at(I, 0, 1), at(W, 0, 1), at(W, 1, 1)}};
  ASSERT_EQ(peakOf(model, fits.front()), 9);
  Windows windows(model);
  ASSERT_TRUE(windows.hold(1'000));
  ASSERT_TRUE(windows.decide(at(F, 1, 1), at(W, 0, 0)));
  ASSERT_TRUE(windows.narrow());
  ASSERT_TRUE(windows.decide(at(I, 0, 0), at(W, 1, 0)));
  EXPECT_TRUE(windows.narrow());
  EXPECT_TRUE(windows.precedes(at(W, 0, 0), at(W, 1, 0)));
  expectPossible(windows, fits);
}

}  // namespace
}  // namespace pw
