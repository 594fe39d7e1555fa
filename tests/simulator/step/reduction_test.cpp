// Gradients between ranks: overlapped reductions, shared parameters.

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "schedules/csv.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/excess.h"
#include "simulator/plan/sharing.h"
#include "simulator/report/metrics.h"
#include "simulator/step/cost_table.h"
#include "simulator/timeline/chrome.h"
#include "simulator/timeline/text.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

const Bindings kBindings{{"b", 2}};

CostTable costs(int stages, Ns forward, Ns backward, Ns reduce) {
  SyntheticCosts synthetic;
  synthetic.forward = {forward};
  synthetic.backward = {backward};
  CostTable table = syntheticTable(synthetic, stages);
  for (StageCost& stage : table.stages) {
    stage.reduce = reduce;
    stage.gradientBytes = 64;
  }
  return table;
}

/// (rank, stage, start, end) of the reductions.
using Reduced = std::vector<std::tuple<int, int, Ns, Ns>>;
Reduced reductionsOf(const Trace& trace) {
  Reduced result;
  for (const Span& s : trace.spans) {
    if (s.kind == SpanKind::ReduceGrad) result.emplace_back(s.rank.value, s.stage.value, s.start, s.end);
  }
  return result;
}

TEST(Reductions, GoOnBesideTheRowAndHoldUpTheOptimizerOnly) {
  CostTable table = costs(2, 10, 20, 30);
  table.stages[0].optimizer = table.stages[1].optimizer = 7;
  const Trace trace = simulate(withReductions(generate("1f1b", {2, 2, 2})), table);
  // Rank 1: F 10..20, B 20..40, F 40..50, B 50..70; rank 0: F 0..10, F 10..20, B 40..60, B 70..90.
  EXPECT_EQ(reductionsOf(trace), (Reduced{{1, 1, Ns{70}, Ns{100}}, {0, 0, Ns{90}, Ns{120}}}));
  const Metrics metrics = metricsOf(trace);
  EXPECT_EQ(metrics.makespan, 90);
  EXPECT_EQ(metrics.step, 120 + 7);
  EXPECT_EQ(metrics.ranks[1].busy, 60);
  const Metrics without = metricsOf(simulate(generate("1f1b", {2, 2, 2}), table));
  EXPECT_EQ(without.step, 90 + 7) << "no REDUCE_GRAD, no reduction";
  EXPECT_EQ(metrics.ranks, without.ranks);
}

TEST(Reductions, OfARankRunOneAfterTheOther) {
  const Schedule schedule = withReductions(parseCsv("0F0,1F0,1B0,0B0\n", "chunks", "test"));
  EXPECT_EQ(toCsv(schedule), "0F0,1F0,1B0,1REDUCE_GRAD,0B0,0REDUCE_GRAD\r\n");
  // B of stage 1 ends at 40, that of stage 0 at 60.
  const Trace trace = simulate(schedule, costs(2, 10, 20, 30));
  EXPECT_EQ(reductionsOf(trace), (Reduced{{0, 1, 40, 70}, {0, 0, 70, 100}}));
  EXPECT_EQ(metricsOf(trace).step, 100);
}

TEST(Reductions, OfTwoReplicasBeginWhenBothAreThere) {
  Schedule schedule = parseCsv("0F0,1F1,1B1,0B0\n0F1,1F0,1B0,0B1\n", "both ways", "test");
  ASSERT_TRUE(schedule.placement.bidirectional());
  CostTable table = costs(2, 10, 20, 5);
  table.microbatchScale = {1, 2};
  // Rank 0: F 0..10, F 20..40, B 40..80, B 80..100; rank 1: F 0..20, F 20..30, B 30..50, B 80..120.
  const Reduced both{{0, 1, 80, 85}, {1, 1, 80, 85}, {0, 0, 120, 125}, {1, 0, 120, 125}};
  EXPECT_EQ(reductionsOf(simulate(withReductions(schedule), table)), both);
}

TEST(Reductions, StandBesideTheLaneInDrawings) {
  const Trace trace = simulate(withReductions(parseCsv("0F0,1F0,1B0,0B0\n", "chunks", "test")), costs(2, 10, 20, 30));
  const std::string text = toText(trace, {120, false, 0});
  EXPECT_NE(text.find("0B0"), std::string::npos) << text;
  EXPECT_NE(text.find("RRR│"), std::string::npos) << text;
  int beside = 0;
  const auto chrome = nlohmann::json::parse(toChromeJson({&trace}, {"p"}));
  for (const auto& event : chrome["traceEvents"]) {
    if (event["ph"] == "X" && event["cat"] == "REDUCE_GRAD") beside += event["tid"] == 1 && event["args"]["bytes"] == 64 ? 1 : 0;
  }
  EXPECT_EQ(beside, 2);
}

/// A table read by stages 0 and 2, a parameter in each.
ModelGraph tied() {
  GraphBuilder b;
  const ValueId h = b.op("linear", {b.input("x"), b.parameter("table", "s")}, "h");
  const ValueId m = b.op("linear", {h, b.parameter("w")}, "m");
  return b.done(b.op("linear", {m, b.parameter("head", "s")}, "y"));
}

Profile profile(const LinkSpec& link) {
  Profile p;
  p.microbatch = 2;
  p.nodes.assign(3, {10, 20, 0, 0, 32, 0});
  p.optimizerNsPerByte = 0.5;
  p.topology.sameNode = link;
  return p;
}

TEST(CostTable, RingsCostTwoRoundsOfTheirBytesAndLatencies) {
  const ModelGraph graph = tied();
  const Partition partition = cutGraph(graph, {NodeId(1), NodeId(2)}, kBindings, nullptr);
  const Placement placement{.rankOfStage = {Rank(0), Rank(1), Rank(2)}};
  const CostTable table = costTable(graph, partition, profile({100, 1e9}), placement, 4);
  EXPECT_EQ(table.stages[1].reduce, 2 * 3 * 100 + 2 * 3 * 64 / 4) << "64 bytes at a byte a ns";
  EXPECT_EQ(table.stages[0].reduce, 0) << "all it has is shared";
  EXPECT_EQ(table.reduceTime, 100 + 64 + (2 * 3 * 100 + 2 * 3 * 64 / 4)) << "between the two ranks, then between replicas";
  EXPECT_EQ(costTable(graph, partition, profile({100, 1e9}), placement).stages[1].reduce, 0);
}

TEST(ChooseSharing, ReplicatesWhereTheWayBackWouldBeLonger) {
  const ModelGraph graph = tied();
  const Profile costs = profile({100, 1e9});
  const Schedule schedule = lower(generate("1f1b", {3, 3, 4}));
  Partition partition = cutGraph(graph, {NodeId(1), NodeId(2)}, kBindings, nullptr);
  const auto choices = chooseSharing({graph, costs, schedule}, partition, std::nullopt, {});
  // A latency and 64 bytes, then 32 ns of optimizer on each rank; or twice that way, and still 32 ns on ranks 0 and 1.
  ASSERT_EQ(choices.size(), 1U);
  EXPECT_EQ(choices[0].replicateTime, 164 + 32);
  EXPECT_EQ(choices[0].transmitTime, 2 * 164 + 32);
  EXPECT_EQ(partition.shared[0].sharing, Sharing::Replicate);
  EXPECT_EQ(choices[0].replicateBytes, 2 * 64);
  static_cast<void>(chooseSharing({graph, costs, schedule}, partition, Sharing::Transmit, {}));
  EXPECT_EQ(partition.shared[0].sharing, Sharing::Transmit) << "as requested";
}

TEST(ChooseSharing, TransmitsWhereItSavesTheSlowestRanksOptimizer) {
  const ModelGraph graph = tied();
  const Profile costs = profile({0, 1e12});  // 64 bytes take no time
  Schedule schedule = parseCsv("0F0,0B0\n1F0,2F0,2B0,1B0\n", "two and one", "test");
  Partition partition = cutGraph(graph, {NodeId(1), NodeId(2)}, kBindings, nullptr);
  const auto choices = chooseSharing({graph, costs, schedule}, partition, std::nullopt, {});
  EXPECT_EQ(choices[0].replicateTime, 2 * 32) << "rank 1 updates w and its copy of the table";
  EXPECT_EQ(choices[0].transmitTime, 32) << "rank 0 the table, rank 1 w";
  EXPECT_EQ(partition.shared[0].sharing, Sharing::Transmit);
}

TEST(ChooseSharing, TransmitsWhereOnlyThatFits) {
  const ModelGraph graph = tied();
  const Profile costs = profile({100, 1e9});
  const Schedule schedule = lower(parseCsv("0F0,0B0\n1F0,2F0,2B0,1B0\n", "two and one", "test"));
  Partition partition = cutGraph(graph, {NodeId(1), NodeId(2)}, kBindings, nullptr);
  const PlanSetting adam{graph, costs, schedule, 1, plannedOptimizer("adam", 0)};
  const Bytes replicated = std::max(peaksOf(adam, partition)[0], peaksOf(adam, partition)[1]);
  const auto choices = chooseSharing(adam, partition, std::nullopt, std::vector<Bytes>(schedule.rows.size(), replicated - 2 * 64));
  EXPECT_TRUE(choices[0].forMemory) << "the state of the table, twice its 64 bytes, is on rank 0 alone";
  EXPECT_EQ(partition.shared[0].sharing, Sharing::Transmit);
}

/// Two tables, each read by the first stage and the last, which has the most parameters. To send updates back takes longer here.
TEST(ChooseSharing, TransmitsSeveralWhereOnlyTogetherTheyFit) {
  GraphBuilder b;
  const ValueId h = b.op("linear", {b.op("linear", {b.input("x"), b.parameter("a", "s")}, "h"), b.parameter("b", "t")}, "i");
  const ValueId m = b.op("linear", {h, b.parameter("w")}, "m");
  ValueId last = b.op("linear", {b.op("linear", {m, b.parameter("c", "s")}, "n"), b.parameter("d", "t")}, "o");
  for (const char* own : {"e", "f", "g", "h"}) last = b.op("linear", {last, b.parameter(own)}, std::string("of_") + own);
  const ModelGraph graph = b.done(last);
  Profile costs = profile({100, 1e9});
  costs.nodes.assign(graph.nodes.size(), costs.nodes.front());
  const Schedule schedule = lower(generate("1f1b", {3, 3, 4}));
  const PlanSetting adam{graph, costs, schedule, 1, plannedOptimizer("adam", 0)};
  Partition partition = cutGraph(graph, {NodeId(2), NodeId(3)}, kBindings, nullptr);
  ASSERT_EQ(partition.shared.size(), 2U);
  const auto fits = [&](const std::vector<Bytes>& limits) { return excessOf(peaksOf(adam, partition), limits) == 0; };
  std::set<std::pair<bool, int>> seen;
  for (Bytes limit = 1'000; limit < 3'000; limit += 16) {
    const std::vector<Bytes> limits(3, limit);
    int fewest = 3;  // transmitted of those that fit
    for (const Sharing first : {Sharing::Replicate, Sharing::Transmit}) {
      for (const Sharing second : {Sharing::Replicate, Sharing::Transmit}) {
        partition.shared[0].sharing = first;
        partition.shared[1].sharing = second;
        if (fits(limits)) fewest = std::min(fewest, (first == Sharing::Transmit ? 1 : 0) + (second == Sharing::Transmit ? 1 : 0));
      }
    }
    const auto choices = chooseSharing(adam, partition, std::nullopt, limits);
    const auto transmitted = static_cast<int>(std::ranges::count(choices, Sharing::Transmit, &SharingChoice::sharing));
    EXPECT_EQ(transmitted, fewest == 3 ? 0 : fewest) << limit;
    EXPECT_EQ(fits(limits), fewest < 3) << limit;
    EXPECT_EQ(std::ranges::count(choices, true, &SharingChoice::forMemory), transmitted) << limit;
    seen.emplace(fewest < 3, transmitted);
  }
  EXPECT_EQ(seen, (std::set<std::pair<bool, int>>{{false, 0}, {true, 0}, {true, 1}, {true, 2}}));
}

TEST(ChooseSharing, CostsNothingOnOneRank) {
  const ModelGraph graph = tied();
  const Profile costs = profile({100, 1e9});
  const Schedule schedule = parseCsv("0F0,1F0,2F0,2B0,1B0,0B0\n", "one", "test");
  Partition partition = cutGraph(graph, {NodeId(1), NodeId(2)}, kBindings, nullptr);
  EXPECT_EQ(chooseSharing({graph, costs, schedule}, partition, std::nullopt, {})[0].ranks, 1);
  EXPECT_EQ(costTable(graph, partition, costs, schedule.placement).reduceTime, 0);
}

}  // namespace
}  // namespace pw::test
