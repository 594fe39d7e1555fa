// Whether runs got slower: by how much, at which stage, and what chance makes of it.
#include "simulator/history/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/simulate.h"

namespace pw {
namespace {

constexpr Ns kMs = 1'000'000;

/// Steps of two stages of 10 ms each, one after the other, every duration times a factor of its own: exp of a normal of this deviation.
struct Machine {
  std::mt19937 random;
  double runDeviation = 0;  ///< of a run: all of its steps and stages alike
  double stepDeviation = 0;

  RunTimes run(int steps, double first, double second) {
    std::normal_distribution<double> normal;
    const double all = std::exp(runDeviation * normal(random));
    RunTimes times;
    for (int step = 0; step < steps; ++step) {
      const auto duration = [&](double factor) { return Ns(std::llround(10e6 * factor * all * std::exp(stepDeviation * normal(random)))); };
      const Ns a = duration(first), b = duration(second);
      times.push_back({a + b, {a, b}});
    }
    return times;
  }
  std::vector<RunTimes> runs(int count, int steps, double first = 1, double second = 1) {
    std::vector<RunTimes> result;
    for (int i = 0; i < count; ++i) result.push_back(run(steps, first, second));
    return result;
  }
};

TEST(StepTimes, SumTheComputeOfEachStage) {
  const CostTable costs = syntheticTable(
      {.forward = {kMs}, .backward = {2 * kMs}, .backwardInput = {}, .backwardWeight = {}, .latency = 0, .transfer = 0, .overlap = {}}, 2);
  const GatedStep times = stepTimes(simulate(lower(generate("1f1b", {2, 2, 4})), costs), 2);
  EXPECT_EQ(times.stages, (std::vector<Ns>{4 * 3 * kMs, 4 * 3 * kMs}));
  EXPECT_EQ(times.step, (4 + 1) * 3 * kMs);  // (M + R − 1)(F + B)
  EXPECT_EQ(stepTimes(Trace{}, 2), (GatedStep{0, {0, 0}}));
}

TEST(Gate, NamesTheStageThatGotSlowerAndByHowMuch) {
  Machine machine{std::mt19937(1), 0, 0.01};
  const GateReport report = gate(machine.runs(4, 20), machine.runs(4, 20, 1, 1.05), 0.05);
  EXPECT_EQ(report.verdict, GateVerdict::Slower);
  EXPECT_THAT(report.slower, testing::ElementsAre(Stage(1)));
  EXPECT_NEAR(report.stages[1].slower, 0.05, 0.01);
  EXPECT_NEAR(report.step.slower, 0.025, 0.01);
  EXPECT_TRUE(report.runsAreUnits);
  EXPECT_THAT(gateText(report), testing::HasSubstr("Slower: stage 1 computes"));
}

TEST(Gate, NamesTheStageOfOneRunOnEachSideButDoesNotFailIt) {
  Machine machine{std::mt19937(1), 0, 0.01};
  const GateReport report = gate(machine.runs(1, 20), machine.runs(1, 20, 1, 1.05), 0.05);
  EXPECT_FALSE(report.runsAreUnits);
  EXPECT_EQ(report.verdict, GateVerdict::Unclear);
  EXPECT_THAT(report.slower, testing::ElementsAre(Stage(1)));
  EXPECT_THAT(gateText(report), testing::StartsWith("Unclear: stage 1 computes"));
  EXPECT_THAT(gateText(report), testing::HasSubstr("what differs from run to run"));
}

/// Machines on which every run has a speed of its own, which its steps say nothing about.
TEST(Gate, FailsNoEqualRunsWhereverOnlyOneOfEachSideIsKnown) {
  Machine machine{std::mt19937(10), 0.2, 0.01};
  for (int trial = 0; trial < 200; ++trial) EXPECT_NE(gate(machine.runs(1, 20), machine.runs(1, 20), 0.05).verdict, GateVerdict::Slower);
}

TEST(Gate, LetsASlowDownBelowTheLimitPass) {
  Machine machine{std::mt19937(2), 0, 0.002};
  const GateReport report = gate(machine.runs(1, 20), machine.runs(1, 20, 1, 1.02), 0.05);
  EXPECT_GT(report.stages[1].low, 0) << "it is slower beyond chance";
  EXPECT_EQ(report.verdict, GateVerdict::NotSlower);
  EXPECT_THAT(gateText(report), testing::StartsWith("Not slower by 5 % or more: "));
}

TEST(Gate, SaysWhereTimesVaryTooMuchToExcludeTheLimit) {
  Machine machine{std::mt19937(3), 0, 0.3};
  const GateReport report = gate(machine.runs(1, 12), machine.runs(1, 12), 0.05);
  EXPECT_EQ(report.verdict, GateVerdict::Unclear);
  EXPECT_THAT(gateText(report), testing::HasSubstr("Record more runs"));
}

TEST(Gate, TakesRunsAsUnitsWhereThereAreFour) {
  // Steps of a run are alike, runs differ by 20 %: twenty steps of one run say nothing about the next.
  Machine machine{std::mt19937(4), 0.2, 0.001};
  const GateReport report = gate(machine.runs(2, 20), machine.runs(2, 20), 0.05);
  EXPECT_TRUE(report.runsAreUnits);
  EXPECT_EQ(report.verdict, GateVerdict::Unclear);
}

TEST(Gate, SaysThatNoStageIsSlowerWhereOnlyTheStepIs) {
  Machine machine{std::mt19937(5), 0, 0.001};
  std::vector<RunTimes> after = machine.runs(2, 20);
  for (RunTimes& run : after) {
    for (GatedStep& step : run) step.step += 3 * kMs;
  }
  const GateReport report = gate(machine.runs(2, 20), after, 0.05);
  EXPECT_EQ(report.verdict, GateVerdict::Slower);
  EXPECT_TRUE(report.slower.empty());
  EXPECT_THAT(gateText(report), testing::HasSubstr("no stage computes longer"));
}

/// A stage whose times scatter so much that they show nothing is neither blamed nor cleared.
TEST(Gate, DoesNotClearAStageThatItCannotTellAbout) {
  GateReport report;
  report.limit = 0.05;
  report.verdict = GateVerdict::Slower;
  report.step = {0.2, 0.1, 0.3, 0, 0};
  report.stages = {{0.001, -0.01, 0.02, 0, 0}, {0.36, -0.05, 0.94, 0, 0}};
  EXPECT_EQ(gateText(report),
            "Slower: the step takes 20.0 % longer (+10.0 to +30.0 %), but no stage is shown to compute longer, nor that none does: stage 1 "
            "takes 36.0 % longer (-5.0 to +94.0 %).");
}

TEST(Gate, DoesNotSayThatNoStageIsSlowerWhereSomeAreBelowTheLimit) {
  Machine machine{std::mt19937(9), 0, 0.001};
  std::vector<RunTimes> after = machine.runs(2, 20, 1.03, 1.03);
  for (RunTimes& run : after) {
    for (GatedStep& step : run) step.step += 2 * kMs;
  }
  const GateReport report = gate(machine.runs(2, 20), after, 0.05);
  EXPECT_EQ(report.verdict, GateVerdict::Slower);
  EXPECT_TRUE(report.slower.empty());
  EXPECT_THAT(gateText(report), testing::HasSubstr("no stage alone by the limit"));
}

TEST(Gate, FailsInAtMostTwoPercentOfEqualRunsAndNamesFivePercentInNineteenOfTwenty) {
  for (const bool manyRuns : {false, true}) {
    Machine machine{std::mt19937(6), manyRuns ? 0.01 : 0, 0.015};
    const int runs = manyRuns ? 4 : 1;
    int falseAlarms = 0, named = 0;
    constexpr int kTrials = 1000;
    for (int trial = 0; trial < kTrials; ++trial) {
      const std::vector<RunTimes> base = machine.runs(runs, 20);
      falseAlarms += gate(base, machine.runs(runs, 20), 0.05).verdict == GateVerdict::Slower;
      const GateReport injected = gate(base, machine.runs(runs, 20, 1, 1.05), 0.05);
      named += !injected.slower.empty() && injected.slower.front() == Stage(1);
    }
    EXPECT_LE(falseAlarms, kTrials * 2 / 100) << runs;
    EXPECT_GE(named, kTrials * 95 / 100) << runs;
  }
}

TEST(Gate, RefusesTooFewSteps) {
  Machine machine{std::mt19937(8), 0, 0.01};
  EXPECT_THROW((void)gate(machine.runs(1, 5), machine.runs(1, 20), 0.05), UsageError);
  EXPECT_THROW((void)gate(machine.runs(1, 20), machine.runs(0, 20), 0.05), UsageError);
  EXPECT_NO_THROW((void)gate(machine.runs(2, 1), machine.runs(2, 1), 0.05)) << "runs are the units";
}

}  // namespace
}  // namespace pw
