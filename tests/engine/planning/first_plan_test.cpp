// Where a model is planned before anything was chosen.
#include "engine/planning/first_plan.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backends/resources/resources.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/plan/planner.h"
#include "simulator/step/compile.h"

namespace pw::test {
namespace {

ModelGraph sample(const char* name) { return loadModel({std::string(PW_SOURCE_DIR "/resources/models/") + name}); }

/// gpt_small with every parameter so many times as large.
ModelGraph enlarged(std::int64_t factor) {
  ModelGraph graph = sample("gpt_small.pt2");
  for (const StateTensor& parameter : graph.parameters) {
    auto& sizes = graph.values[parameter.value.index()].tensor->sizes;
    if (!sizes.empty()) sizes.front().hint *= factor;
  }
  return graph;
}

TEST(FirstPlan, IsOnFourRanksOfTheSmallestPresetThatHoldsTheModel) {
  const FirstPlan small = firstPlan(sample("gpt_small.pt2"));
  EXPECT_EQ(small.cluster, "cpu-workstation");
  EXPECT_EQ(small.ranks, 4);
  EXPECT_EQ(small.begins.size(), 3U);
  EXPECT_TRUE(small.fits);
  const ModelGraph model = enlarged(40'000);  // some 900 KB of parameters become 36 GB, with their gradients 18 GB a rank
  const FirstPlan large = firstPlan(model);
  EXPECT_TRUE(large.fits);
  EXPECT_EQ(large.ranks, 4);
  EXPECT_NE(large.cluster, "cpu-workstation");
  const Cluster cluster = loadCluster(large.cluster);
  EXPECT_FALSE(large.others.empty()) << "larger ones hold it, too";
  for (const std::string& other : large.others) EXPECT_GE(loadCluster(other).memoryBytes, cluster.memoryBytes) << other;
  PlanRequest request;
  request.ranks = large.ranks;
  request.microbatches = 2 * large.ranks;
  request.microbatch = exportedBatch(model);
  request.begins = large.begins;
  request.loss = defaultLoss(model);
  const Schedule rows = planRows(generate("1f1b", {4, 4, 8}), 1);
  const Priced priced = price(request, model, estimate(model, request.microbatch, cluster), rows);
  for (const Bytes peak : compile(rows, priced.costs).peakBytes) EXPECT_LE(peak, cluster.memoryBytes) << "with its own splits";
  for (const std::string& preset : clusterPresets()) {
    if (loadCluster(preset).memoryBytes >= loadCluster(large.cluster).memoryBytes) continue;
    const FirstPlan there = firstPlan(model, preset);
    EXPECT_TRUE(!there.fits || there.ranks > 4) << preset << " is smaller";
  }
}

TEST(FirstPlan, IsOnTheClusterUsedLastWithAsManyRanksAsItNeeds) {
  EXPECT_EQ(firstPlan(sample("gpt_small.pt2"), "h100-nvlink").cluster, "h100-nvlink");
  const FirstPlan none = firstPlan(enlarged(40'000'000), "l4-pcie");
  EXPECT_FALSE(none.fits);
  EXPECT_GT(none.ranks, 4) << "more ranks were tried";
  EXPECT_THROW(static_cast<void>(firstPlan(sample("gpt_small.pt2"), "no-such-cluster")), UsageError);
}

/// The smallest preset with so many ranks and no more.
std::string clusterOf(std::size_t ranks) {
  Cluster cluster = loadCluster("cpu-workstation");
  cluster.name = "mine";
  cluster.topology.ranks.resize(ranks);
  return toJson(cluster);
}

TEST(FirstPlan, IsOnNoMoreRanksThanTheClusterHas) {
  const FirstPlan two = firstPlan(sample("gpt_small.pt2"), clusterOf(2));
  EXPECT_EQ(two.ranks, 2);
  EXPECT_TRUE(two.fits);
  const FirstPlan none = firstPlan(enlarged(40'000'000), clusterOf(16));
  EXPECT_FALSE(none.fits) << "more ranks than it has are no plan";
  EXPECT_LE(none.ranks, 16);
  const ModelGraph marked = sample("gpt_split.pt2");
  ASSERT_GT(marked.splitMarkers.size(), 0U);
  EXPECT_FALSE(firstPlan(marked, clusterOf(marked.splitMarkers.size())).fits) << "one rank too few";
  EXPECT_TRUE(firstPlan(marked, clusterOf(marked.splitMarkers.size() + 1)).fits);
}

TEST(FirstPlan, RecomputesWhereActivationsDoNotFitOtherwise) {
  // Values, but no parameters, twice as wide each time: at some width the ranks hold them only where they are computed again.
  ModelGraph graph = sample("gpt_small.pt2");
  FirstPlan plan = firstPlan(graph, "cpu-workstation");
  EXPECT_FALSE(plan.recomputes);
  for (int doubled = 0; doubled < 40 && plan.fits && !plan.recomputes; ++doubled) {
    for (std::size_t v = 0; v < graph.values.size(); ++v) {
      const bool isState = std::ranges::any_of(graph.parameters, [&](const StateTensor& p) { return p.value.index() == v; });
      auto& tensor = graph.values[v].tensor;
      if (tensor && tensor->sizes.size() > 2 && !isState) tensor->sizes.back().hint *= 2;
    }
    plan = firstPlan(graph, "cpu-workstation");
  }
  EXPECT_TRUE(plan.recomputes);
  EXPECT_TRUE(plan.fits);
}

TEST(FirstPlan, HasTheStagesThatTheModelIsMarkedWith) {
  const ModelGraph graph = sample("gpt_split.pt2");
  const FirstPlan plan = firstPlan(graph);
  EXPECT_EQ(plan.begins, graph.splitMarkers);
  EXPECT_EQ(plan.ranks, static_cast<int>(graph.splitMarkers.size()) + 1);
}

}  // namespace
}  // namespace pw::test
