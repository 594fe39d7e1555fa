#include "simulator/plan/recompute_to_fit.h"

#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/support/graph_builder.h"

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

}  // namespace
}  // namespace pw::test
