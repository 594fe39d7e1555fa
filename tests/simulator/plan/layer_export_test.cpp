#include "simulator/plan/layer_export.h"

#include <gtest/gtest.h>

#include "schedules/error.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/layer_chain.h"
#include "simulator/plan/planner.h"
#include "simulator/report/metrics.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

constexpr int kLayers = 6;
constexpr std::int64_t kSamples = 2;

Cluster cluster() {
  Cluster cluster;
  cluster.peakFlops = {{"fp32", 1e9}};
  cluster.memoryBytesPerSecond = 1e9;
  cluster.launchOverhead = 130;
  cluster.topology.ranksPerNode = 8;
  cluster.topology.sameNode = {170, 1e9};
  return cluster;
}

PlanRequest requestAt(const std::vector<NodeId>& begins) {
  PlanRequest request;
  request.microbatch = kSamples;
  request.begins = begins;
  return request;
}

Plan planAt(const ModelGraph& graph, const Profile& profile, const std::vector<NodeId>& begins, const Schedule& rows) {
  const PlanRequest request = requestAt(begins);
  return planOf(request, graph, profile, rows, price(request, graph, profile, rows), {});
}

struct Step {
  Ns makespan = 0, step = 0;

  bool operator==(const Step&) const = default;
};

Step stepOf(const Plan& plan) {
  const Metrics metrics = metricsOf(simulate(plan.schedule, plan.costs));
  return {metrics.makespan, metrics.step};
}

/// Steps of the model and of its table at the same splits, in all ways to cut it into three.
void expectEqualSteps(const Profile& profile, const Cluster* links) {
  const ModelGraph graph = chain(kLayers);
  for (const char* schedule : {"1f1b", "gpipe", "zb-h1"}) {
    const Schedule rows = planRows(generate(schedule, {3, 3, 4}), 1);
    for (int a = 1; a < kLayers; ++a) {
      for (int b = a + 1; b < kLayers; ++b) {
        const std::vector<NodeId> begins{NodeId(a), NodeId(b)};
        const Plan plan = planAt(graph, profile, begins, rows);
        const ModelGraph table = chainOf(layersOf(plan, graph), "/t.json");
        const Profile costs = links != nullptr ? estimate(table, kSamples, *links) : profileOf(table);
        EXPECT_EQ(stepOf(planAt(table, costs, begins, rows)), stepOf(plan)) << schedule << " at " << a << " and " << b;
      }
    }
  }
}

TEST(LayerExport, AnEstimatedModelsTableTakesAsLongOnTheSameCluster) {
  const Cluster links = cluster();
  expectEqualSteps(estimate(chain(kLayers), kSamples, links), &links);
}

TEST(LayerExport, AMeasuredModelsTableTakesAsLongByItself) {
  Profile profile = estimate(chain(kLayers), kSamples, cluster());
  profile.estimated = false;
  profile.actionOverhead = 77;
  profile.sendOverhead = 31;
  profile.loss.forward = 50;
  profile.loss.backward = 90;
  profile.loss.weight = 40;
  profile.topology.sameNode = {400, 0};  // the same channel is never busy: messages differ from a time of their own only there
  expectEqualSteps(profile, nullptr);
}

TEST(LayerExport, HasARowForEachModuleWithItsNameAndSizes) {
  const ModelGraph graph = chain(3);
  const Profile profile = estimate(graph, kSamples, cluster(), DType::Unknown, Attention::AsTraced, Loss{LossKind::Sum});  // which is free
  const Schedule rows = planRows(generate("1f1b", {2, 2, 2}), 1);
  const LayerTable table = layersOf(planAt(graph, profile, {NodeId(1)}, rows), graph);
  ASSERT_EQ(table.layers.size(), 3U);
  EXPECT_EQ(table.microbatch, kSamples);
  EXPECT_EQ(table.layers[0].name, "start");
  EXPECT_EQ(table.layers[1].name, "blocks.1");
  EXPECT_EQ(table.layers[2].module, "blocks.2");
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(table.layers[i].parameters, 4 * 4 * 4) << "float32 [4, 4]";
    EXPECT_EQ(table.layers[i].output, i == 2 ? 0 : kSamples * GraphBuilder::kRow);
    EXPECT_EQ(table.layers[i].forward, profile.nodes[i].forward);
    EXPECT_EQ(table.layers[i].input + table.layers[i].weight, profile.nodes[i].backward);
  }
  const ModelGraph again = chainOf(table, "/t.json");
  EXPECT_THROW(static_cast<void>(layersOf(planAt(again, profileOf(again), {NodeId(1)}, rows), again)), UsageError) << "a table already";
}

}  // namespace
}  // namespace pw::test
