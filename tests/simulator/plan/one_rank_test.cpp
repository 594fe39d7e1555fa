#include "simulator/plan/one_rank.h"

#include <gtest/gtest.h>

#include "simulator/costs/layer_chain.h"

namespace pw::test {
namespace {

/// Two layers of 30 and 60 ns with 100 bytes of parameters each.
LayerTable twoLayers() {
  LayerTable table{"two", 1, 0, 0, {}};
  for (const Ns forward : {Ns{10}, Ns{20}}) {
    const Ns half = forward;
    table.layers.push_back({"layer" + std::to_string(table.layers.size()), forward, half, half, 100, 10, 0, 4, Layer::kByLink, ""});
  }
  return table;
}

class OneRankOf : public testing::Test {
 protected:
  std::optional<OneRank> with(std::vector<RankSpec> ranks, int replicas = 1) {
    const ModelGraph graph = chainOf(twoLayers(), "/t.json");
    Profile profile = profileOf(graph);
    profile.topology.ranks = std::move(ranks);
    PlanRequest request;
    request.microbatches = 5;
    request.replicas = replicas;
    ModelCosts model(graph, profile, request.microbatch);
    return onOneRank(request, model, true);
  }
  static constexpr Ns kAlone = 5 * 90;  ///< five microbatches one after the other
};

TEST_F(OneRankOf, RanksThatAreAlikeIsAnyOfThem) {
  const auto one = with({});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->step, kAlone);
  EXPECT_EQ(one->rank, std::nullopt);
  EXPECT_EQ(with({{1, 0, 0}, {1, 0, 1}})->rank, std::nullopt);
}

TEST_F(OneRankOf, RanksThatDifferIsTheFastestThatItFits) {
  const auto one = with({{0.1, 0, 0}, {0.5, 0, 0}, {1, 0, 0}});
  ASSERT_TRUE(one);
  EXPECT_EQ(one->step, kAlone);
  EXPECT_EQ(one->rank, JobRank(2));
  const auto small = with({{0.1, 0, 0}, {0.5, 0, 0}, {1, one->peak - 1, 0}});
  ASSERT_TRUE(small);
  EXPECT_EQ(small->step, 2 * kAlone);
  EXPECT_EQ(small->rank, JobRank(1));
  EXPECT_EQ(with({{1, one->peak - 1, 0}, {0.5, 1, 0}}), std::nullopt) << "no rank has the memory";
}

TEST_F(OneRankOf, ReplicasTakeOneEach) {
  const auto two = with({{0.1, 0, 0}, {0.5, 0, 0}, {1, 0, 0}}, 2);
  ASSERT_TRUE(two);
  EXPECT_EQ(two->step, 2 * kAlone) << "the slower of the two fastest counts";
  EXPECT_EQ(two->rank, JobRank(2));
  EXPECT_EQ(with({{0.1, 0, 0}, {0.5, 1, 0}}, 2), std::nullopt);
}

}  // namespace
}  // namespace pw::test
