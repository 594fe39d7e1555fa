// A calibrated profile gives plans the costs that calibrating their costs gives.
#include "simulator/costs/calibration.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "backends/resources/resources.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/split.h"
#include "simulator/partition/stage_costs.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

constexpr Calibration kAdded{
    .forward = 1.25, .backward = 1.5, .optimizer = 2, .perAction = 30'000, .perSend = 60'000, .perMessage = 70'000};

/// Equal up to what rounding each node instead of their sum changes.
void expectAlike(Ns a, Ns b, std::size_t nodes) { EXPECT_LE(abs(a - b), nodes) << a << " and " << b; }

TEST(Calibration, CountsForTimesThatRanksHaveOfTheirOwn) {
  Profile profile;
  profile.nodes.assign(2, {100, 200, 0, 0, 0, 0});
  auto own = std::make_shared<Profile>(profile);
  own->nodes.assign(2, {40, 80, 0, 0, 0, 0});
  own->optimizerNsPerByte = 1;
  profile.topology.ranks.assign(3, {});
  profile.topology.ranks[1].own = profile.topology.ranks[2].own = {"own.json", own};
  const auto& ranks = calibrated(profile, kAdded).topology.ranks;
  EXPECT_EQ(ranks[1].own.costs->nodes[0].forward, 50);
  EXPECT_EQ(ranks[1].own.costs->nodes[0].backward, 120);
  EXPECT_EQ(ranks[1].own.costs->actionOverhead, kAdded.perAction);
  EXPECT_EQ(ranks[1].own.costs->optimizerNsPerByte, 2);
  EXPECT_EQ(ranks[1].own.costs, ranks[2].own.costs);
}

TEST(Calibration, OfAProfileIsThatOfItsPlansCosts) {
  const ModelGraph graph = loadModel({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"});
  Profile profile = estimate(graph, exportedBatch(graph), loadCluster("h100-nvlink"));
  profile.actionOverhead = 5'000;
  const auto points = splitPoints(graph, bindBatch(graph, profile.microbatch));
  const Partition partition = cutGraph(graph, {points[points.size() / 2].begin}, bindBatch(graph, profile.microbatch), nullptr);
  const Placement placement = loopPlacement({2, 2, 1});
  const CostTable before = costTable(graph, partition, profile, placement, 1);
  const CostTable after = costTable(graph, partition, calibrated(profile, kAdded), placement, 1);
  const CostTable expected = calibrated(before, kAdded, profile.actionOverhead, placement);
  ASSERT_EQ(after.stages.size(), expected.stages.size());
  for (std::size_t s = 0; s < after.stages.size(); ++s) {
    const StageCost &a = after.stages[s], &b = expected.stages[s];
    const std::size_t nodes = profile.nodes.size();
    expectAlike(a.forward, b.forward, nodes);
    expectAlike(a.backward, b.backward, nodes);
    expectAlike(a.backwardInput, b.backwardInput, nodes);
    expectAlike(a.backwardWeight, b.backwardWeight, nodes);
    expectAlike(a.optimizer, b.optimizer, nodes);
    EXPECT_EQ(a.activationBytes, b.activationBytes);
  }
  Calibration withoutSends = kAdded;
  withoutSends.perSend = 0;
  const CostTable plain = costTable(graph, partition, calibrated(profile, withoutSends), placement, 1);
  EXPECT_EQ(after.stages[0].forward, plain.stages[0].forward + kAdded.perSend);
  EXPECT_EQ(after.stages[1].forward, plain.stages[1].forward) << "the last stage sends nothing forward";
  EXPECT_EQ(after.stages[0].backward, plain.stages[0].backward) << "nor the first one backward";
  EXPECT_EQ(after.stages[1].backward, plain.stages[1].backward + kAdded.perSend);
  EXPECT_EQ(after.stages[1].backwardInput, plain.stages[1].backwardInput + kAdded.perSend);
  EXPECT_EQ(after.stages[1].backwardWeight, plain.stages[1].backwardWeight);
  ASSERT_FALSE(after.messages.empty());
  EXPECT_EQ(after.messages, expected.messages);
  EXPECT_EQ(after.messages.front().latency, before.messages.front().latency + kAdded.perMessage);
}

TEST(Calibration, LeavesNoLatencyBelowZero) {
  Profile profile;
  profile.topology.sameNode.latency = 50;
  EXPECT_EQ(calibrated(profile, {.forward = 1, .backward = 1, .optimizer = 1, .perAction = 0, .perSend = 0, .perMessage = -80})
                .topology.sameNode.latency,
            0);
}

}  // namespace
}  // namespace pw::test
