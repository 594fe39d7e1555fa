#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/report/explain.h"
#include "simulator/report/metrics.h"
#include "simulator/report/phases.h"
#include "simulator/step/cost_table.h"
#include "tests/support/random_costs.h"

namespace pw {
namespace {

CostTable table(const std::vector<Ns>& forward, const std::vector<Ns>& input, const std::vector<Ns>& weight, int stages, Ns latency = 0) {
  SyntheticCosts costs;
  costs.forward = forward;
  costs.backwardInput = input;
  costs.backwardWeight = weight;
  costs.latency = latency;
  return syntheticTable(costs, stages);
}

Span compute(int rank, SpanKind kind, int microbatch, Ns start, Ns end) {
  return {Rank(rank), kind, Stage(rank), Microbatch(microbatch), Rank(rank), 0, start, end};
}

using Idle = std::array<Ns, kPhases>;

TEST(Phases, Of1f1bIdleOnlyBeforeTheFirstBackwardAndAfterTheLastForward) {
  // Rank i starts at iF, does R−i forwards, and its first gradient comes at RF + (R−1−i)B; (R−1)(F+B) in all.
  const Ns f = 2, b = 5;
  for (int r = 1; r <= 6; ++r) {
    for (int m = r; m <= 3 * r; ++m) {
      const auto phases = phasesOf(simulate(generate("1f1b", {r, r, m}), table({f}, {b}, {0}, r)));
      for (int i = 0; i < r; ++i) {
        const RankPhases& rank = phases[static_cast<std::size_t>(i)];
        EXPECT_EQ(rank.idle, (Idle{i * f + (r - 1 - i) * b, 0, (r - 1 - i) * f + i * b})) << "rank " << i << " of " << r << " M=" << m;
        EXPECT_EQ(rank.beforeFirst, i * f);
        EXPECT_EQ(rank.afterLast, i * b);
        EXPECT_EQ(rank.steady, r * f + (r - 1 - i) * b);
      }
    }
  }
}

TEST(Phases, OfGpipeHaveNoSteadyState) {
  // Rank R−1 ends its forwards at (M+R−1)F; the gradient takes (R−1−i)B to rank i, which has worked MF.
  const Ns f = 2, b = 5;
  for (int r = 1; r <= 6; ++r) {
    const auto phases = phasesOf(simulate(generate("gpipe", {r, r, 4}), table({f}, {b}, {0}, r)));
    for (int i = 0; i < r; ++i) {
      const RankPhases& rank = phases[static_cast<std::size_t>(i)];
      EXPECT_EQ(rank.idle, (Idle{(r - 1) * f + (r - 1 - i) * b, 0, i * b}));
      EXPECT_EQ(rank.steady, rank.cooldown);
    }
  }
}

TEST(Phases, WithoutBackwardsAreWarmupUntilTheLastForward) {
  const auto phases = phasesOf(simulate(generate("forward-only", {4, 4, 5}), table({3}, {0}, {0}, 4)));
  for (int i = 0; i < 4; ++i) EXPECT_EQ(phases[static_cast<std::size_t>(i)].idle, (Idle{Ns(i * 3), 0, Ns((3 - i) * 3)}));
}

TEST(Phases, OfASteadyStateThatStutters) {
  // One rank beside one that works all the time: F 0–2, idle, B 5–6, idle, F 8–9, idle, B 10–11 and idle until 20; a third does nothing.
  Trace trace;
  trace.ranks = 3;
  trace.spans = {compute(0, SpanKind::Forward, 0, 0, 2), compute(0, SpanKind::BackwardInput, 0, 5, 6),
                 compute(0, SpanKind::Forward, 1, 8, 9), compute(0, SpanKind::Backward, 1, 10, 11),
                 compute(1, SpanKind::Forward, 0, 0, 20)};
  const auto phases = phasesOf(trace);
  EXPECT_EQ(phases[0], (RankPhases{Rank(0), 5, 9, {3, 2, 10}, 0, 9}));
  EXPECT_EQ(phases[1].idle, (Idle{0, 0, 0}));
  EXPECT_EQ(phases[2].idle, (Idle{20, 0, 0}));
  EXPECT_EQ(phases[2].beforeFirst, 20);
}

TEST(Phases, OfATraceThatDoesNotStartAtZeroOrOverlapsItselfStillSumToTheIdleTime) {
  Trace trace;
  trace.ranks = 2;
  trace.spans = {compute(0, SpanKind::Forward, 0, 100, 110), compute(0, SpanKind::Backward, 0, 105, 120),
                 compute(1, SpanKind::Forward, 0, 112, 119), compute(1, SpanKind::Backward, 0, 130, 150)};
  const auto phases = phasesOf(trace);
  const Metrics metrics = metricsOf(trace);
  EXPECT_EQ(phases[0].idle, (Idle{0, 0, 30}));
  EXPECT_EQ(phases[1].idle, (Idle{12 + 11, 0, 0}));
  EXPECT_EQ(metrics.ranks[0].idle, 30);
  EXPECT_EQ(metrics.ranks[1].idle, 23);
}

TEST(Phases, OfAnEmptyTraceAreEmpty) {
  Trace trace;
  trace.ranks = 2;
  EXPECT_EQ(phasesOf(trace), (std::vector<RankPhases>{{.rank = Rank(0)}, {.rank = Rank(1)}}));
  EXPECT_EQ(steadyPeriod(trace), 0);
}

TEST(SteadyPeriod, Of1f1bIsForwardAndBackwardOfTheSlowestRank) {
  for (int slow = 0; slow < 4; ++slow) {
    std::vector<Ns> forward(4, 3), input(4, 4);
    forward[static_cast<std::size_t>(slow)] = 7;
    input[static_cast<std::size_t>(slow)] = 11;
    EXPECT_EQ(steadyPeriod(simulate(generate("1f1b", {4, 4, 40}), table(forward, input, {0}, 4))), 7 + 11) << "slow rank " << slow;
  }
  for (const int m : {4, 5, 8, 9, 31})
    EXPECT_EQ(steadyPeriod(simulate(generate("1f1b", {4, 4, m}), table({3}, {4}, {0}, 4))), 7) << "M=" << m;
}

TEST(SteadyPeriod, OfZbH1IsAllThreeParts) {
  EXPECT_EQ(steadyPeriod(simulate(generate("zb-h1", {4, 4, 24}), table({9}, {7}, {5}, 4))), 9 + 7 + 5);
}

TEST(SteadyPeriod, OfSeveralChunksIsThatOfAMicrobatchThroughAllOfThem) {
  for (int v = 1; v <= 4; ++v) {
    EXPECT_EQ(steadyPeriod(simulate(generate("interleaved-1f1b", {4, 4 * v, 16}), table({3}, {4}, {1}, 4 * v))), v * (3 + 4 + 1))
        << "V=" << v;
  }
  EXPECT_EQ(steadyPeriod(simulate(generate("zbv", {4, 8, 24}), table({3}, {3}, {3}, 8))), 2 * 9);
}

TEST(SteadyPeriod, OfLongStepsDoesNotOverflow) {
  const auto period = [](std::int64_t scale) {
    return steadyPeriod(simulate(generate("1f1b", {2, 2, 20'000}), table({Ns(3 * scale)}, {Ns(4 * scale)}, {Ns(0)}, 2)));
  };
  EXPECT_EQ(period(4'000'000'000).value, period(1).value * 4'000'000'000);
}

TEST(SteadyPeriod, OfForwardsIsTheSlowestForward) {
  EXPECT_EQ(steadyPeriod(simulate(generate("forward-only", {3, 3, 20}), table({3, 8, 2}, {0}, {0}, 3))), 8);
}

TEST(SteadyPeriod, IsZeroWhereNothingIsSteady) {
  EXPECT_EQ(steadyPeriod(simulate(generate("gpipe", {4, 4, 16}), table({3}, {4}, {0}, 4))), 0);
  EXPECT_EQ(steadyPeriod(simulate(generate("interleaved-1f1b", {3, 12, 3}), table({3}, {4}, {0}, 12))), 0);
  EXPECT_EQ(steadyPeriod(simulate(generate("1f1b", {4, 4, 3}), table({3}, {4}, {0}, 4))), 0);
}

TEST(SteadyPeriod, TakesTheMiddleHalfInTheOrderOfExecution) {
  // Backwards of microbatches 5, 4, … start at 10, 20, 30, 41, 52, 100 with forwards until 200: n = 6, a = 1, b = 4: (52 − 20) / 3 = 10.67.
  Trace trace;
  trace.ranks = 2;
  trace.spans = {compute(0, SpanKind::Forward, 0, 0, 50), compute(0, SpanKind::Forward, 9, 199, 200),
                 compute(1, SpanKind::Forward, 0, 199, 200)};
  for (int m = 0; m < 9; ++m)
    trace.spans.push_back(compute(1, SpanKind::BackwardInput, m, Ns(7 * m), Ns(7 * m + 1)));  // more, but less busy
  int microbatch = 6;
  for (const int start : {10, 20, 30, 41, 52, 100})
    trace.spans.push_back(compute(0, SpanKind::BackwardInput, --microbatch, Ns(start), Ns(start + 2)));
  EXPECT_EQ(steadyPeriod(trace), 11);
}

}  // namespace
}  // namespace pw
