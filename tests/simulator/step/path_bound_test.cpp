// Lower bounds from longest paths against the steps that are simulated, and peaks without times against those of compiled programs.

#include "simulator/step/path_bound.h"
#include "simulator/step/compile.h"
#include "simulator/step/execute.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include <fmt/format.h>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/compiled_rows.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// Every family that trains, at a shape that it allows, lowered with reductions.
std::vector<Schedule> allRows() {
  std::vector<Schedule> all;
  for (const Generator& family : generators()) {
    const Shape shape{4, 4 * family.chunks, 8};
    if (family.name != "forward-only" && !family.refusal(shape)) all.push_back(withReductions(lower(family.generate(shape))));
  }
  return all;
}

/// Uneven costs, the same for all microbatches.
CostTable uniformCosts(std::mt19937_64& random, const Schedule& rows) {
  CostTable costs = randomCosts(random, rows);
  costs.microbatchScale.clear();
  for (StageCost& stage : costs.stages) {
    stage.reduce = draw<Ns>(random, 1, 200);
    for (Bytes* bytes : {&stage.gradientBytes, &stage.optimizerBytes, &stage.addedByInput, &stage.forwardPeak, &stage.backwardPeak,
                         &stage.inputPeak, &stage.weightPeak, &stage.fixedBytes}) {
      *bytes = draw<Bytes>(random, 0, 500);
    }
    stage.freedByInput = draw<Bytes>(random, 0, stage.activationBytes);
  }
  for (MessageCost& m : costs.messages) m.transfer = draw<Ns>(random, 1, 60);  // all channels are held: one structure
  return costs;
}

/// Other times for the same messages.
CostTable otherTimes(std::mt19937_64& random, const Schedule& rows, CostTable costs) {
  for (StageCost& stage : costs.stages) {
    for (Ns* time : {&stage.forward, &stage.backward, &stage.backwardInput, &stage.backwardWeight, &stage.optimizer})
      *time = draw<Ns>(random, 0, 120);
    stage.reduce = draw<Ns>(random, 1, 200);
    stage.activationBytes = draw<Bytes>(random, stage.freedByInput, 1500);
  }
  for (MessageCost& m : costs.messages) {
    m.latency = draw<Ns>(random, 0, 30);
    m.transfer = draw<Ns>(random, 1, 60);
    m.bytes = draw<Bytes>(random, 0, 500);
  }
  costs.reduceTime = oneIn(random, 2) ? draw<Ns>(random, 1, 50) : 0;
  static_cast<void>(rows);
  return costs;
}

TEST(PathBounds, AreTheStepOfTheirOwnCostsAndNeverMoreThanThatOfOthers) {
  std::mt19937_64 random(11);
  for (const Schedule& rows : allRows()) {
    SCOPED_TRACE(rows.name);
    CostTable costs = uniformCosts(random, rows);
    CompiledRows compiled(rows);
    PathBounds bounds;
    Times times, plain;
    std::vector<Binding> bindings;
    int close = 0;
    for (int i = 0; i < 12; ++i) {
      const Program& program = compiled.timed(costs);
      ASSERT_EQ(compiled.structure(), 1);
      execute(program, times, bindings);
      execute(program, plain);
      ASSERT_EQ(times.start, plain.start);
      const Ns step = stepOf(rows, costs, program, times);
      const Ns known = bounds.stepWith(rows, costs, std::numeric_limits<Ns>::max());
      EXPECT_LE(known, step);
      close += 10 * known >= 8 * step ? 1 : 0;
      bounds.add(rows, costs, program, times, bindings);
      EXPECT_EQ(bounds.stepWith(rows, costs, std::numeric_limits<Ns>::max()), step) << "the path just kept is the longest";
      costs = otherTimes(random, rows, costs);
    }
    EXPECT_GT(close, 0) << "some bound is of use";
  }
}

TEST(PathBounds, KnowNothingOfUnevenMicrobatches) {
  std::mt19937_64 random(3);
  const Schedule rows = lower(generate("1f1b", {3, 3, 4}));
  CostTable costs = uniformCosts(random, rows);
  costs.microbatchScale = {1, 1, 1, 0.5};
  CompiledRows compiled(rows);
  Times times;
  std::vector<Binding> bindings;
  PathBounds bounds;
  const Program& program = compiled.timed(costs);
  execute(program, times, bindings);
  bounds.add(rows, costs, program, times, bindings);
  EXPECT_EQ(bounds.stepWith(rows, costs, 0), 0);
}

TEST(CompiledRows, GiveThePeaksAndTimesOfAFreshlyCompiledProgram) {
  std::mt19937_64 random(12);
  for (const Schedule& rows : allRows()) {
    SCOPED_TRACE(rows.name);
    CompiledRows compiled(rows);
    CostTable costs = uniformCosts(random, rows);
    std::vector<Bytes> peaks = compiled.peaks(costs);
    for (int i = 0; i < 8; ++i) {
      const CostTable next =
          i % 4 == 3 ? uniformCosts(random, rows) : otherTimes(random, rows, costs);  // sometimes other messages, another structure
      const Program fresh = compile(rows, next);
      EXPECT_EQ(compiled.peaks(next), fresh.peakBytes);
      EXPECT_EQ(compiled.peaks(costs), peaks) << "as before";
      EXPECT_EQ(compiled.timed(next).duration, fresh.duration);
      costs = next;
      peaks = fresh.peakBytes;
    }
  }
}

TEST(CompiledRows, UpdateThePeaksOfSingleRanks) {
  std::mt19937_64 random(13);
  const Schedule rows = lower(generate("interleaved-1f1b", {4, 8, 8}));
  CostTable costs = uniformCosts(random, rows);
  CompiledRows compiled(rows);
  std::vector<Bytes> peaks = compiled.peaks(costs);
  costs.stages[6].activationBytes += 5'000;  // rank 2
  std::vector<Bytes> updated = peaks;
  compiled.updatePeaks(costs, {Rank(2)}, updated);
  EXPECT_EQ(updated, compile(rows, costs).peakBytes);
  EXPECT_GT(updated[2], peaks[2]);
}

}  // namespace
}  // namespace pw::test
