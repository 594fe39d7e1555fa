#include "simulator/report/metrics.h"
#include "simulator/report/lower_bound.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/report/json.h"
#include "simulator/step/compile.h"
#include "simulator/step/cost_table.h"
#include "simulator/step/execute.h"
#include "tests/support/random_costs.h"
#include "tests/support/split_backward.h"

namespace pw {
namespace {

CostTable uniform(int stages, Ns forward, Ns backward, Ns latency = 0) {
  SyntheticCosts costs;
  costs.forward = {forward};
  costs.backward = {backward};
  costs.latency = latency;
  return syntheticTable(costs, stages);
}

Span compute(int rank, SpanKind kind, int microbatch, Ns start, Ns end) {
  return {Rank(rank), kind, Stage(rank), Microbatch(microbatch), Rank(rank), 0, start, end};
}

TEST(Measure, BubbleFractionOfUniformSchedulesIsTheClosedForm) {
  for (int r = 1; r <= 8; ++r) {
    for (const int m : {1, 2, 8, 32}) {
      const Metrics metrics = metricsOf(simulate(generate("1f1b", {r, r, m}), uniform(r, 5, 9)));
      EXPECT_DOUBLE_EQ(metrics.bubbleFraction, (r - 1.0) / (m + r - 1.0));  // idle (R−1)(F+B) of (M+R−1)(F+B) on every rank
    }
  }
}

TEST(Measure, PeakLiveOf1f1bFallsByOneFromRankToRankAndOfGpipeIsM) {
  for (int r = 1; r <= 6; ++r) {
    for (const int m : {1, 3, 6, 20}) {
      const Metrics oneByOne = metricsOf(simulate(generate("1f1b", {r, r, m}), uniform(r, 1, 2)));
      const Metrics gpipe = metricsOf(simulate(generate("gpipe", {r, r, m}), uniform(r, 1, 2)));
      for (int i = 0; i < r; ++i) {
        const auto at = static_cast<std::size_t>(i);
        EXPECT_EQ(oneByOne.ranks[at].peakLiveMicrobatches, std::min(r - i, m)) << "rank " << i << " of " << r << ", M=" << m;
        EXPECT_EQ(gpipe.ranks[at].peakLiveMicrobatches, m);
      }
    }
  }
}

TEST(Measure, ALifeEndsWithWAndEndsFreeFirst) {
  Trace trace;
  trace.ranks = 1;
  trace.spans = {compute(0, SpanKind::Forward, 0, 0, 1), compute(0, SpanKind::BackwardInput, 0, 1, 2),
                 compute(0, SpanKind::BackwardWeight, 0, 2, 3), compute(0, SpanKind::Forward, 1, 3, 4),
                 compute(0, SpanKind::Backward, 1, 4, 5)};
  EXPECT_EQ(metricsOf(trace).ranks[0].peakLiveMicrobatches, 1);
  trace.spans[2].start = 3;
  trace.spans[2].end = 4;  // W now ends after the next F starts
  EXPECT_EQ(metricsOf(trace).ranks[0].peakLiveMicrobatches, 2);
}

TEST(Measure, ALifeOfNoLengthCounts) {
  Trace trace;
  trace.ranks = 1;
  trace.spans = {compute(0, SpanKind::Forward, 0, 5, 5), compute(0, SpanKind::Backward, 0, 5, 5)};
  EXPECT_EQ(metricsOf(trace).ranks[0].peakLiveMicrobatches, 1);
}

TEST(Measure, BusyAndIdleMakeUpTheMakespan) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const Trace trace = simulate(schedule, test::randomCosts(random, schedule));
    const Metrics metrics = metricsOf(trace);
    Ns work = 0;
    Ns busy = 0;
    for (const Span& span : trace.spans) work += isCompute(span.kind) ? span.end - span.start : 0;
    for (const RankMetrics& rank : metrics.ranks) {
      busy += rank.busy;
      EXPECT_EQ(rank.busy + rank.idle, metrics.makespan);
      EXPECT_GE(rank.idle, rank.exposedComm);
      EXPECT_GE(rank.exposedComm, 0);
      EXPECT_LE(rank.busy, metrics.window);
    }
    EXPECT_EQ(busy, work);
    EXPECT_LE(metrics.window, metrics.makespan);
    EXPECT_GE(metrics.step, metrics.makespan);
    EXPECT_GE(metrics.bubbleFractionWindow, 0);
  }
}

TEST(Measure, ExposedCommunicationIsIdleTimeWithAMessageInFlight) {
  // Two ranks, M = 1, F = 10, B = 20, latency 4: rank 1 idles 0..14, its message flies 10..14; rank 0 idles 10..48, its gradient
  // flies 44..48.
  const Metrics metrics = metricsOf(simulate(generate("gpipe", {2, 2, 1}), uniform(2, 10, 20, 4)));
  EXPECT_EQ(metrics.makespan, 10 + 4 + 10 + 20 + 4 + 20);
  EXPECT_EQ(metrics.ranks[0].exposedComm, 4);
  EXPECT_EQ(metrics.ranks[1].exposedComm, 4);
  EXPECT_EQ(metrics.ranks[1].idle, 68 - 30);
  EXPECT_EQ(metrics.window, 68);
}

TEST(Measure, HiddenCommunicationIsNotExposed) {
  Trace trace;
  trace.ranks = 2;
  trace.spans = {compute(0, SpanKind::Forward, 0, 0, 2),
                 compute(1, SpanKind::Forward, 5, 0, 6),
                 compute(1, SpanKind::Forward, 0, 9, 10),
                 {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(0), Rank(1), 0, 2, 9},
                 {Rank(0), SpanKind::SendForward, Stage(0), Microbatch(1), Rank(1), 0, 8, 30}};
  // Of 2..9 the part 6..9 is idle; the second message overlaps it and flies on past the makespan.
  EXPECT_EQ(metricsOf(trace).ranks[1].exposedComm, 3);
  EXPECT_EQ(metricsOf(trace).ranks[0].exposedComm, 0);
}

TEST(Measure, WindowIsTheLongestRankAndMakespanAllOfThem) {
  Trace trace;
  trace.ranks = 2;
  trace.spans = {compute(0, SpanKind::Forward, 0, 10, 14),
                 compute(1, SpanKind::Forward, 0, 14, 16),
                 compute(1, SpanKind::Backward, 0, 19, 20),
                 {Rank(1), SpanKind::Optimizer, Stage(1), Microbatch(-1), Rank(1), 0, 20, 27}};
  const Metrics metrics = metricsOf(trace);
  EXPECT_EQ(metrics.makespan, 10);
  EXPECT_EQ(metrics.window, 6);
  EXPECT_EQ(metrics.step, 17);
  EXPECT_DOUBLE_EQ(metrics.bubbleFraction, (6.0 + 7.0) / 20.0);
  EXPECT_DOUBLE_EQ(metrics.bubbleFractionWindow, 1.0 - 4.0 / 6.0);
}

TEST(Measure, AnEmptyTraceHasNoTimeAndNoBubble) {
  Trace trace;
  trace.ranks = 2;
  const Metrics metrics = metricsOf(trace);
  EXPECT_EQ(metrics.ranks.size(), 2u);
  EXPECT_EQ(metrics.makespan, 0);
  EXPECT_EQ(metrics.bubbleFraction, 0.0);
}

TEST(LowerBound, IsReachedByUniformSchedulesWithFreeMessages) {
  for (int r = 1; r <= 8; ++r) {
    for (const int m : {1, 2, 5, 16}) EXPECT_EQ(lowerBound(generate("1f1b", {r, r, m}), uniform(r, 3, 5)), (m + r - 1) * 8);
  }
}

TEST(LowerBound, IsTheSlowestStageWithItsWayThereAndBack) {
  SyntheticCosts costs;
  costs.forward = {1, 2, 10, 3};
  costs.backward = {2, 4, 20, 6};
  costs.latency = 100;
  const Schedule schedule = generate("gpipe", {4, 4, 50});
  // Stage 2: way there 1 + 2 + 200, 50 microbatches of 30, way back 200 + 4 + 2.
  EXPECT_EQ(lowerBound(schedule, syntheticTable(costs, 4)), 203 + 50 * 30 + 206);
  // One microbatch: its whole way, all work and six hops.
  EXPECT_EQ(lowerBound(generate("gpipe", {4, 4, 1}), syntheticTable(costs, 4)), 16 + 32 + 600);
}

TEST(LowerBound, OfSplitBackwardsLetsWeightsComeLate) {
  SyntheticCosts costs;
  costs.forward = {10};
  costs.backwardInput = {10};
  costs.backwardWeight = {10};
  const Schedule split = test::splitBackward(generate("gpipe", {3, 3, 20}), test::Weights::Last);
  // Last rank: 20 to arrive, 20 (F + I), 20 I's upstream, one W: 470; or all its work: 20 + 600.
  EXPECT_EQ(lowerBound(split, syntheticTable(costs, 3)), 620);
  costs.backwardWeight = {0};
  EXPECT_EQ(lowerBound(split, syntheticTable(costs, 3)), 20 + 400 + 20);
}

TEST(LowerBound, IsNeverAboveAnySimulatedMakespan) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    const Schedule schedule = test::randomSchedule(random);
    const CostTable costs = test::randomCosts(random, schedule);
    const Ns bound = lowerBound(schedule, costs);
    EXPECT_LE(bound, metricsOf(simulate(schedule, costs)).makespan);
    for (const RankMetrics& rank : metricsOf(simulate(schedule, costs)).ranks) EXPECT_GE(bound, rank.busy);
  }
}

TEST(LowerBound, OfForwardOnlyIsReachedOnUniformStages) {
  EXPECT_EQ(lowerBound(generate("forward-only", {4, 4, 9}), uniform(4, 3, 5)), (9 + 3) * 3);
}

PredictionReport predicted(const Schedule& schedule, const CostTable& costs) {
  const Program program = compile(schedule, costs);
  Times times;
  execute(program, times);
  return predict(schedule, costs, program, times, traceOf(schedule, costs, program, times));
}

TEST(PredictionJson, HasTheDocumentedNames) {
  const Schedule schedule = lower(generate("1f1b", {4, 4, 8}));
  const CostTable costs = uniform(4, 1, 2);
  const auto json = nlohmann::json::parse(predictionJson(predicted(schedule, costs), schedule, costs));
  EXPECT_EQ(json.at("makespan_ns"), 33);
  EXPECT_EQ(json.at("window_ns"), 33);
  EXPECT_EQ(json.at("lower_bound_ns"), 33);
  EXPECT_DOUBLE_EQ(json.at("bubble_fraction").get<double>(), 3.0 / 11.0);
  EXPECT_DOUBLE_EQ(json.at("bubble_fraction_window").get<double>(), 9.0 / 33.0);
  EXPECT_EQ(json.at("actions"), 64);
  EXPECT_EQ(json.at("ranks").size(), 4u);
  const auto& rank = json.at("ranks")[1];
  EXPECT_EQ(rank.at("rank"), 1);
  EXPECT_EQ(rank.at("busy_ns"), 24);
  EXPECT_EQ(rank.at("idle_ns"), 9);
  EXPECT_EQ(rank.at("exposed_comm_ns"), 0);
  EXPECT_EQ(rank.at("peak_bytes"), 0);
  EXPECT_EQ(rank.at("peak_live_microbatches"), 3);
  const auto& stage = json.at("stages")[3];
  EXPECT_EQ(stage.at("stage"), 3);
  EXPECT_EQ(stage.at("rank"), 3);
  EXPECT_EQ(stage.at("forward_ns"), 1);
  EXPECT_EQ(stage.at("backward_ns"), 2);
  EXPECT_TRUE(stage.contains("parameter_bytes"));
}

TEST(ProblemsJson, NamesEachProblem) {
  const Schedule schedule = generate("gpipe", {2, 2, 2});
  EXPECT_EQ(nlohmann::json::parse(problemsJson(schedule, {})).at("problems").size(), 0u);
  const Problem problem{Rank(1), 3, {Stage(1), ActionKind::Backward, Microbatch(0)}, "twice"};
  const auto json = nlohmann::json::parse(problemsJson(schedule, {problem}));
  EXPECT_EQ(json.at("problems")[0],
            (nlohmann::json{{"rank", 1}, {"position", 3}, {"action", "1B0"}, {"message", "twice"}, {"stops", "always"}}));
  EXPECT_EQ(json.at("valid"), false);
}

TEST(ProblemsJson, SaysWhichTransportAProblemStops) {
  const Schedule schedule = generate("gpipe", {2, 2, 2});
  Problem problem{Rank(1), 3, {Stage(1), ActionKind::Backward, Microbatch(0)}, "deadlock"};
  problem.stops = Stops::Blocking;
  const auto json = nlohmann::json::parse(problemsJson(schedule, {problem}));
  EXPECT_EQ(json.at("valid"), false);
  EXPECT_EQ(json.at("problems")[0].at("stops"), "blocking_sends");
}

}  // namespace
}  // namespace pw
