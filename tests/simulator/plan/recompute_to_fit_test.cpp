#include "simulator/plan/recompute_to_fit.h"

#include <gtest/gtest.h>

#include <random>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// Every node: forward 10, backward 20; saves its output of 32 bytes.
Profile profile(std::size_t nodes) {
  Profile p;
  p.microbatch = 2;
  p.nodes.assign(nodes, {10, 20, 0, 0, 32, 0});
  return p;
}

TEST(RecomputeToFit, TakesStagesOfRanksThatDoNotFitOnly) {
  const ModelGraph graph = chain(4);
  const Profile costs = profile(4);
  const Schedule schedule = lower(generate("gpipe", {2, 2, 4}));
  const PlanSetting setting{graph, costs, schedule};
  Partition partition = cutGraph(graph, {NodeId(2)}, {{"b", 2}}, nullptr);
  const std::vector<Bytes> kept = peaksOf(setting, partition);
  EXPECT_TRUE(recomputeToFit(setting, partition, std::vector<Bytes>(2, std::max(kept[0], kept[1]))));
  EXPECT_TRUE(partition.stages[0].checkpoints.empty() && partition.stages[1].checkpoints.empty());
  ASSERT_NE(kept[0], kept[1]);
  EXPECT_TRUE(recomputeToFit(setting, partition, std::vector<Bytes>(2, std::max(kept[0], kept[1]) - 1)));
  EXPECT_EQ(partition.stages[kept[0] > kept[1] ? 0 : 1].checkpoints.size(), 1U);
  EXPECT_TRUE(partition.stages[kept[0] > kept[1] ? 1 : 0].checkpoints.empty());
  EXPECT_FALSE(recomputeToFit(setting, partition, {1, 1}));
  EXPECT_EQ(partition.stages[0].checkpoints.size() + partition.stages[1].checkpoints.size(), 2U)
      << "what does not fit needs no more than with everything recomputed";
}

/// Five stages on each rank are more than all choices are tried of: what is chosen fits, and without any one of them it would not.
TEST(RecomputeToFit, TakesNoneOfManyStagesThatTheOthersMakeSuperfluous) {
  constexpr int kStages = 10;
  const ModelGraph graph = chain(kStages);
  const Schedule schedule = lower(generate("interleaved-1f1b", {2, kStages, 4}));
  std::vector<NodeId> begins;
  for (int s = 1; s < kStages; ++s) begins.emplace_back(s);
  int chosen = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    Profile costs = profile(kStages);
    for (NodeCost& node : costs.nodes) {
      node.forward = draw<Ns>(random, 1, 99);
      node.saved = draw<Bytes>(random, 1, 400);
    }
    const PlanSetting setting{graph, costs, schedule};
    Partition partition = cutGraph(graph, begins, {{"b", 2}}, nullptr);
    const std::vector<Bytes> kept = peaksOf(setting, partition);
    EXPECT_FALSE(recomputeToFit(setting, partition, {1, 1}));
    const std::vector<Bytes> least = peaksOf(setting, partition);
    std::vector<Bytes> limits;
    for (std::size_t r = 0; r < kept.size(); ++r) limits.push_back(least[r] + (kept[r] - least[r]) * draw(random, 0, 100) / 100);
    ASSERT_TRUE(recomputeToFit(setting, partition, limits));
    const std::vector<Bytes> peaks = peaksOf(setting, partition);
    for (std::size_t r = 0; r < peaks.size(); ++r) EXPECT_LE(peaks[r], limits[r]);
    for (std::size_t s = 0; s < partition.stages.size(); ++s) {
      if (partition.stages[s].checkpoints.empty()) continue;
      ++chosen;
      Partition without = partition;
      without.stages[s].checkpoints.clear();
      const std::size_t r = schedule.placement.rankOfStage[s].index();
      EXPECT_GT(peaksOf(setting, without)[r], limits[r]) << "stage " << s;
    }
  }
  EXPECT_GT(chosen, 40);
}

}  // namespace
}  // namespace pw::test
