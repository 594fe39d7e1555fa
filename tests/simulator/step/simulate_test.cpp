#include "simulator/step/simulate.h"
#include "simulator/step/cost_table.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/metrics.h"
#include "tests/support/longest_path.h"
#include "tests/support/random_costs.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

CostTable uniform(int stages, Ns forward, Ns backward, Ns latency = 0, Ns transfer = 0) {
  SyntheticCosts costs;
  costs.forward = {forward};
  costs.backward = {backward};
  costs.latency = latency;
  costs.transfer = transfer;
  return syntheticTable(costs, stages);
}

Ns makespan(const Schedule& schedule, const CostTable& costs) { return metricsOf(simulate(schedule, costs)).makespan; }

/// The only span of this kind, stage and microbatch.
Span spanOf(const Trace& trace, SpanKind kind, int stage, int microbatch) {
  std::vector<Span> found;
  std::copy_if(trace.spans.begin(), trace.spans.end(), std::back_inserter(found),
               [&](const Span& s) { return s.kind == kind && s.stage == Stage(stage) && s.microbatch == Microbatch(microbatch); });
  EXPECT_EQ(found.size(), 1u) << nameOf(kind) << " of stage " << stage << ", microbatch " << microbatch;
  return found.empty() ? Span{} : found.front();
}

int count(const Trace& trace, SpanKind kind) {
  return static_cast<int>(std::count_if(trace.spans.begin(), trace.spans.end(), [&](const Span& s) { return s.kind == kind; }));
}

std::vector<std::pair<Ns, Bytes>> memoryOf(const Trace& trace, int rank) {
  std::vector<std::pair<Ns, Bytes>> samples;
  for (const MemorySample& s : trace.memory) {
    if (s.rank == Rank(rank)) samples.emplace_back(s.time, s.bytes);
  }
  return samples;
}

std::string messageOf(const Schedule& schedule, const CostTable& costs) {
  try {
    (void)simulate(schedule, costs);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Simulate, UniformGpipeAnd1f1bTakeTheClosedForm) {
  // (M + R − 1)(F + B): GPipe and DAPPLE.
  for (const char* name : {"gpipe", "1f1b"}) {
    for (int r = 1; r <= 8; ++r) {
      for (int m = 1; m <= 32; ++m) {
        EXPECT_EQ(makespan(generate(name, {r, r, m}), uniform(r, 7, 12)), (m + r - 1) * (7 + 12)) << name << " R=" << r << " M=" << m;
      }
    }
  }
}

TEST(Simulate, UnitCostsOnFourRanksAndEightMicrobatchesTake33) {
  EXPECT_EQ(makespan(generate("gpipe", {4, 4, 8}), uniform(4, 1, 2)), 33);
  EXPECT_EQ(makespan(generate("1f1b", {4, 4, 8}), uniform(4, 1, 2)), 33);
}

TEST(Simulate, LatencyAddsTheClosedFormTo1f1b) {
  // (M + R − 1)(F + B) + 2(R − 1)cM/R + 2(R − 2)c, for R ≥ 2, R | M; it holds for latencies above F and B as well. (One rank sends
  // nothing.)
  for (const auto& [forward, backward] : {std::pair{10, 10}, {10, 20}, {20, 10}, {7, 12}}) {
    for (const int c : {1, 3, 7, 10, 25, 60}) {
      for (int r = 2; r <= 8; ++r) {
        for (int m = r; m <= 4 * r; m += r) {
          const int expected = (m + r - 1) * (forward + backward) + 2 * (r - 1) * c * m / r + 2 * (r - 2) * c;
          EXPECT_EQ(makespan(generate("1f1b", {r, r, m}), uniform(r, Ns(forward), Ns(backward), Ns(c))), expected)
              << "F=" << forward << " B=" << backward << " c=" << c << " R=" << r << " M=" << m;
        }
      }
    }
  }
}

TEST(Simulate, AThousandRandomCasesEqualTheLongestPath) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const CostTable costs = test::randomCosts(random, schedule);
    const Trace trace = simulate(schedule, costs);
    const test::LongestPath expected(schedule, costs);

    std::multimap<Ns, Ns> messages;
    std::map<Action, const Span*> spans;
    for (const Span& span : trace.spans) {
      if (isCompute(span.kind)) {
        const auto kind = static_cast<ActionKind>(span.kind);  // the first kinds of spans are those of actions
        spans[{span.stage, kind, span.microbatch}] = &span;
      }
      if (isMessage(span.kind)) messages.emplace(span.start, span.end);
    }
    std::size_t actions = 0;
    for (const auto& row : schedule.rows) {
      for (const Action& action : row) {
        ++actions;
        ASSERT_TRUE(spans.contains(action)) << toString(action);
        ASSERT_EQ(spans[action]->start, expected.start(action)) << toString(action);
        ASSERT_EQ(spans[action]->end, expected.end(action)) << toString(action);
      }
    }
    EXPECT_EQ(spans.size(), actions);
    std::vector<std::pair<Ns, Ns>> left(messages.begin(), messages.end());
    const auto reference = expected.messages();
    std::vector<std::pair<Ns, Ns>> right(reference.begin(), reference.end());
    std::sort(left.begin(), left.end());
    std::sort(right.begin(), right.end());
    EXPECT_EQ(left, right);
    if (HasFailure()) return;
  }
}

TEST(Simulate, ARankIsAlwaysBusyWaitingOrIdleForNoMessage) {
  // Compute and wait spans of a rank follow each other without gap or overlap, from 0 to the end of its row.
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const Trace trace = simulate(schedule, test::randomCosts(random, schedule));
    std::vector<Ns> clock(schedule.rows.size(), 0);
    for (const Span& span : trace.spans) {
      if (!isCompute(span.kind) && span.kind != SpanKind::WaitForward && span.kind != SpanKind::WaitBackward) continue;
      ASSERT_EQ(span.start, clock[span.rank.index()]);
      ASSERT_TRUE(isCompute(span.kind) || span.end > span.start);
      clock[span.rank.index()] = span.end;
    }
  }
}

TEST(Simulate, ALoweredScheduleGivesTheSameSpans) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const CostTable costs = test::randomCosts(random, schedule);
    EXPECT_EQ(simulate(lower(schedule), costs).spans, simulate(schedule, costs).spans);
  }
}

TEST(Simulate, AChannelCarriesOneTransferAtATimeAndLatencyDoesNotHoldIt) {
  CostTable costs = uniform(2, 1, 1, 2, 5);
  costs.messages[0].bytes = 64;
  const Trace trace = simulate(generate("forward-only", {2, 2, 2}), costs);
  // F0 ends at 1: on the wire 1..6, there at 8. F1 ends at 2, waits for the channel: 6..11, there at 13.
  EXPECT_EQ(spanOf(trace, SpanKind::SendForward, 0, 0), (Span{Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), 64, 1, 8}));
  EXPECT_EQ(spanOf(trace, SpanKind::SendForward, 0, 1),
            (Span{Rank(0), SpanKind::SendForward, Stage(0), Microbatch(1), Rank(1), 64, 6, 13}));
  EXPECT_EQ(spanOf(trace, SpanKind::WaitForward, 1, 0), (Span{Rank(1), SpanKind::WaitForward, Stage(1), Microbatch(0), Rank(1), 0, 0, 8}));
  EXPECT_EQ(spanOf(trace, SpanKind::Forward, 1, 0).start, 8);
  EXPECT_EQ(spanOf(trace, SpanKind::WaitForward, 1, 1).start, 9);
  EXPECT_EQ(spanOf(trace, SpanKind::Forward, 1, 1).start, 13);
  EXPECT_EQ(trace.spans.size(), 8u);
}

TEST(Simulate, OppositeDirectionsDoNotShareAChannel) {
  // R = 2, 1F1B, M = 2, F = B = 1, transfer 10: F1 of rank 0 is in flight 11..21 while the gradient of microbatch 0 goes 13..23.
  const Trace trace = simulate(generate("1f1b", {2, 2, 2}), uniform(2, 1, 1, 0, 10));
  EXPECT_EQ(spanOf(trace, SpanKind::SendForward, 0, 1).start, 11);
  EXPECT_EQ(spanOf(trace, SpanKind::SendForward, 0, 1).end, 21);
  EXPECT_EQ(spanOf(trace, SpanKind::SendBackward, 1, 0).start, 13);
  EXPECT_EQ(spanOf(trace, SpanKind::SendBackward, 1, 0).end, 23);
}

TEST(Simulate, GradientsLeaveAfterInputBackwards) {
  SyntheticCosts synthetic;
  synthetic.forward = {1};
  synthetic.backwardInput = {2};
  synthetic.backwardWeight = {4};
  const Schedule split = test::splitBackward(generate("gpipe", {2, 2, 1}));
  const Trace trace = simulate(split, syntheticTable(synthetic, 2));
  // Rank 1: F 1..2, I 2..4, W 4..8. Rank 0: I at 4, not at 8.
  EXPECT_EQ(spanOf(trace, SpanKind::BackwardInput, 0, 0).start, 4);
  EXPECT_EQ(spanOf(trace, SpanKind::BackwardWeight, 1, 0).end, 8);
}

TEST(Simulate, StagesOnOneRankHandOverAtOnce) {
  Schedule schedule = test::loopedGpipe(1, 3, 2);
  const Trace trace = simulate(schedule, uniform(3, 1, 2, 100, 100));
  EXPECT_EQ(count(trace, SpanKind::SendForward) + count(trace, SpanKind::SendBackward), 0);
  EXPECT_EQ(metricsOf(trace).makespan, 3 * 2 * (1 + 2));
}

TEST(Simulate, OptimizerFollowsTheRowOrTheReductionOfAllRanks) {
  CostTable costs = uniform(2, 1, 2);
  costs.stages[0].optimizer = 5;
  costs.stages[1].optimizer = 7;
  const Schedule schedule = generate("gpipe", {2, 2, 1});
  // Rank 1: F 1..2, B 2..4; rank 0: B 4..6.
  Trace trace = simulate(schedule, costs);
  EXPECT_EQ(spanOf(trace, SpanKind::Optimizer, 0, -1).start, 6);
  EXPECT_EQ(spanOf(trace, SpanKind::Optimizer, 1, -1).start, 4);
  costs.reduceTime = 10;
  trace = simulate(schedule, costs);
  EXPECT_EQ(count(trace, SpanKind::ReduceGrad), 2);
  EXPECT_EQ(spanOf(trace, SpanKind::Optimizer, 0, -1).start, 16);
  EXPECT_EQ(spanOf(trace, SpanKind::Optimizer, 1, -1).end, 16 + 7);
  EXPECT_EQ(metricsOf(trace).step, 23);
}

TEST(Simulate, ForwardOnlyHasNoGradientsAndNoOptimizer) {
  CostTable costs = uniform(3, 2, 5, 1, 1);
  costs.stages[0].optimizer = 5;
  costs.reduceTime = 5;
  costs.stages[0].activationBytes = 10;
  const Trace trace = simulate(generate("forward-only", {3, 3, 4}), costs);
  EXPECT_EQ(count(trace, SpanKind::SendForward), 2 * 4);
  EXPECT_EQ(count(trace, SpanKind::SendBackward) + count(trace, SpanKind::Optimizer) + count(trace, SpanKind::ReduceGrad), 0);
  // Each activation goes when its F ends, as the next begins: one at a time.
  EXPECT_EQ(memoryOf(trace, 0), (std::vector{std::pair(Ns{0}, Bytes{10}), std::pair(Ns{8}, Bytes{0})}));
}

TEST(Simulate, MemoryHoldsParametersActivationsAndReceivedBuffers) {
  CostTable costs = uniform(2, 1, 2, 0, 3);
  costs.stages[0] = {1, 2, 1, 1, 0, 100, 20, 3, 1000};
  costs.stages[1] = {1, 2, 1, 1, 0, 200, 40, 6, 5000};
  costs.messages[0].bytes = 70000;
  costs.messages[1].bytes = 900000;
  const Trace trace = simulate(generate("gpipe", {2, 2, 2}), costs);
  // Rank 0: F 0..1, 1..2. Messages arrive on rank 1 at 4 and 7: F 4..5, 7..8, B 8..10, 10..12; gradients arrive at 13 and 16:
  // B 13..15, 16..18. The gradient's buffers are posted as the action before starts (the second F, the first B) and become free as their B
  // starts.
  EXPECT_EQ(memoryOf(trace, 0), (std::vector<std::pair<Ns, Bytes>>{{0, 1123}, {1, 902123}, {15, 901123}, {16, 1123}, {18, 123}}));
  // The first buffer is posted before the first F, so it is free again as that starts; the second as that starts.
  // The first gradient comes up in its B, and stays until the second B has ended.
  EXPECT_EQ(memoryOf(trace, 1), (std::vector<std::pair<Ns, Bytes>>{{0, 246}, {4, 75246}, {7, 10246}, {9, 905246}, {12, 246}}));
}

TEST(Simulate, AReceiveHoldsItsBufferFromTheActionBeforeItsRecvToTheStartOfItsOwn) {
  CostTable costs = uniform(2, 1, 10);
  costs.messages[0].bytes = 7;
  const Trace trace = simulate(generate("1f1b", {2, 2, 2}), costs);
  // Rank 1: F0 1..2, B0 2..12, F1 12..: the second receive is posted as B0 starts.
  EXPECT_EQ(memoryOf(trace, 1), (std::vector<std::pair<Ns, Bytes>>{{0, 0}, {2, 7}, {12, 0}}));
  // Lowered, its RECV stands before B0, so it is posted with F0.
  const Schedule lowered =
      parseCsv("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n1RECV_F0,1F0,1RECV_F1,1B0,1SEND_B0,1F1,1B1,1SEND_B1\n", "", "");
  EXPECT_EQ(memoryOf(simulate(lowered, costs), 1), (std::vector<std::pair<Ns, Bytes>>{{0, 0}, {1, 7}, {12, 0}}));
  // Where every RECV posts its own receive, it is held from there: from the end of F0.
  EXPECT_EQ(memoryOf(simulate(lowered, costs, Sending::Posted), 1), (std::vector<std::pair<Ns, Bytes>>{{0, 7}, {1, 0}, {2, 7}, {12, 0}}));
}

/// The second stage's W needs 10 bytes that the first makes, and nothing else is held.
TEST(Simulate, WhatAWNeedsOfTheStageBeforeOnItsRankIsHeldOnce) {
  CostTable costs = uniform(2, 1, 2);
  costs.stages[0].activationBytes = costs.stages[0].freedByInput = 10;
  costs.stages[1].addedByInput = 10;
  const auto memory = [&](const char* rows) { return memoryOf(simulate(parseCsv(rows, "", ""), costs), 0); };
  using Levels = std::vector<std::pair<Ns, Bytes>>;
  EXPECT_EQ(memory("0F0,1F0,1I0,0I0,1W0,0W0\n"), (Levels{{0, 10}, {2, 20}, {4, 10}, {5, 0}})) << "two of one size";
  costs.stages[1].sharedForWeight = 10;
  EXPECT_EQ(memory("0F0,1F0,1I0,0I0,1W0,0W0\n"), (Levels{{0, 10}, {5, 0}})) << "to the end of the W";
  EXPECT_EQ(memory("0F0,1F0,1I0,0B0,1W0\n"), (Levels{{0, 10}, {6, 0}})) << "also where the first has a whole backward";
  EXPECT_EQ(memory("0F0,1F0,1I0,1W0,0I0,0W0\n"), (Levels{{0, 10}, {5, 0}})) << "to the end of the first's I";
  EXPECT_EQ(memory("0F0,1F0,1B0,0I0,0W0\n"), (Levels{{0, 10}, {5, 0}})) << "there is no W that needs it";
}

TEST(Simulate, AGradientForAnotherStageOfTheRankIsThereUntilItsBackward) {
  CostTable costs = uniform(2, 1, 2);
  costs.messages[1].bytes = 7;
  const auto memory = [&](const char* rows) { return memoryOf(simulate(parseCsv(rows, "", ""), costs), 0); };
  using Levels = std::vector<std::pair<Ns, Bytes>>;
  EXPECT_EQ(memory("0F0,1F0,1I0,1W0,0I0,0W0\n"), (Levels{{0, 0}, {2, 7}, {4, 0}})) << "made while the first I runs";
  EXPECT_EQ(memory("0F0,1F0,1B0,0F1,1F1,0B0,1B1,0B1\n"), (Levels{{0, 0}, {3, 7}, {6, 0}, {9, 7}, {10, 0}}));
}

TEST(Simulate, MicrobatchScaleMultipliesComputeAndTransfersToTheNearestNanosecond) {
  CostTable costs = uniform(2, 3, 6, 4, 5);
  costs.microbatchScale = {1.0, 0.5};
  const Trace trace = simulate(generate("gpipe", {2, 2, 2}), costs);
  const auto length = [&](SpanKind kind, int stage) {
    const Span span = spanOf(trace, kind, stage, 1);
    return span.end - span.start;
  };
  EXPECT_EQ(length(SpanKind::Forward, 0), 2);  // 1.5
  EXPECT_EQ(length(SpanKind::Backward, 0), 3);
  EXPECT_EQ(length(SpanKind::SendForward, 0), 3 + 4);  // 2.5, and the whole latency
}

TEST(Simulate, RefusesWhatDeadlocksAndNamesTheAction) {
  Schedule schedule = generate("gpipe", {2, 2, 2});
  std::swap(schedule.rows[0][1], schedule.rows[0][2]);  // rank 0: F0 B0 F1 B1, but rank 1 wants F1 before it does B0
  const std::string message = messageOf(schedule, uniform(2, 1, 1));
  EXPECT_NE(message.find("deadlocks"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 0 waits at position 1 (0B0)"), std::string::npos) << message;

  Schedule backwardFirst = generate("gpipe", {1, 1, 1});
  std::swap(backwardFirst.rows[0][0], backwardFirst.rows[0][1]);
  EXPECT_NE(messageOf(backwardFirst, uniform(1, 1, 1)).find("deadlocks"), std::string::npos);
}

TEST(Simulate, RefusesWhatDoesNotFit) {
  const Schedule schedule = generate("gpipe", {2, 2, 2});
  const CostTable good = uniform(2, 1, 1);
  const auto refuses = [](const Schedule& s, const CostTable& c, const std::string& part) {
    const std::string message = messageOf(s, c);
    EXPECT_NE(message.find(part), std::string::npos) << "expected `" << part << "` in: " << message;
  };
  refuses(schedule, uniform(3, 1, 1), "3 stages");
  CostTable costs = good;
  costs.microbatchScale = {1.0};
  refuses(schedule, costs, "scale 1 microbatches");
  costs = good;
  costs.messages[0].to = Stage(2);
  refuses(schedule, costs, "names stage 2");
  costs = good;
  costs.messages[0].backward = true;
  refuses(schedule, costs, "backward message from stage 0 to stage 1");
  Schedule broken = schedule;
  broken.rows[0][0].microbatch = Microbatch(2);
  refuses(broken, good, "0F2");
  broken = schedule;
  broken.rows[0][0].stage = Stage(1);
  refuses(broken, good, "wrong rank");
  broken = schedule;
  broken.placement.rankOfStage[1] = Rank(2);
  refuses(broken, good, "on rank 2");
  broken = schedule;
  broken.rows[0][1] = broken.rows[0][0];
  refuses(broken, good, "0F0 twice");
  broken = schedule;
  broken.microbatches = 2'000'000'000;  // a hostile file: refused before anything of that size is made
  refuses(broken, good, "incomplete");
}

TEST(Simulate, AnEmptyScheduleGivesAnEmptyTrace) {
  const Trace trace = simulate(Schedule{}, CostTable{});
  EXPECT_TRUE(trace.spans.empty());
  EXPECT_EQ(trace.ranks, 0);
}

TEST(SyntheticTable, RepeatsOneValueAndDerivesMissingParts) {
  SyntheticCosts costs;
  costs.forward = {3};
  costs.backward = {5, 8};
  CostTable table = syntheticTable(costs, 2);
  EXPECT_EQ(table.stages[1].forward, 3);
  EXPECT_EQ(table.stages[0].backwardInput, 2);
  EXPECT_EQ(table.stages[0].backwardWeight, 3);
  costs.backward = {};
  costs.backwardInput = {4};
  costs.backwardWeight = {1, 2};
  table = syntheticTable(costs, 2);
  EXPECT_EQ(table.stages[0].backward, 5);
  EXPECT_EQ(table.stages[1].backward, 6);
  EXPECT_EQ(table.messages.size(), 2u);
  EXPECT_THROW((void)syntheticTable(costs, 3), UsageError);
  costs.forward = {-1};
  EXPECT_THROW((void)syntheticTable(costs, 2), UsageError);
}

}  // namespace
}  // namespace pw
