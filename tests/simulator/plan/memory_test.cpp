#include "simulator/plan/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "backends/resources/resources.h"
#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/replica_prices.h"
#include "simulator/plan/setting.h"
#include "simulator/report/metrics.h"
#include "simulator/step/compiled_rows.h"
#include "tests/support/graph_builder.h"
#include "tests/support/random_costs.h"

namespace pw::test {
namespace {

/// embed; two blocks of two operators with a parameter each, the second also of the first's; head.
ModelGraph twoBlocks() {
  GraphBuilder g;
  ValueId x = g.within({"embed"}).op("linear", {g.input("x"), g.parameter("e")}, "embedded");
  for (const std::string block : {"0", "1"}) {
    const ValueId weight = g.parameter("w" + block);
    x = g.within({"blocks", "blocks." + block}).op("linear", {x, weight}, "a" + block);
    x = g.within({"blocks", "blocks." + block, "blocks." + block + ".mlp"}).op("linear", {x, weight}, "b" + block);
  }
  x = g.within({}).op("relu", {x}, "last");
  return g.done(x);
}

struct Case {
  ModelGraph graph = twoBlocks();
  Profile profile;
  PlanRequest request;
};

Case madeCase(int replicas) {
  Case c;
  for (std::size_t n = 0; n < c.graph.nodes.size(); ++n) {
    NodeCost cost;
    cost.forward = 100;
    cost.backward = 200;
    cost.saved = 1000 + static_cast<Bytes>(n);
    c.profile.nodes.push_back(cost);
  }
  c.profile.topology.sameNode = {20, 1e9};
  c.profile.optimizerNsPerByte = 1;
  c.request.ranks = 2;
  c.request.microbatches = 4;
  c.request.microbatch = 2;
  c.request.replicas = replicas;
  c.request.optimizer.kind = OptimizerSpec::Kind::AdamW;
  c.request.begins = {NodeId(3)};
  return c;
}

TEST(PlanMemory, IsOfTheModulesThatKeepIt) {
  const Case c = madeCase(1);
  ModelCosts model(c.graph, c.profile, c.request.microbatch);
  Partition partition = model.cut(c.request.begins).orThrow();
  const Bytes weight = 64;  // 4 × 4 numbers of 4 bytes
  const std::vector<ModuleMemory> first{{"embed", 1000, weight}, {"blocks.0", 1001 + 1002, weight}};
  const std::vector<ModuleMemory> second{{"blocks.1", 1003 + 1004, weight}, {"", 1005, 0}};
  EXPECT_EQ(memoryByModule(c.graph, partition.stages[0], c.profile), first);
  EXPECT_EQ(memoryByModule(c.graph, partition.stages[1], c.profile), second);
  partition.stages[0].checkpoints = {{NodeId(1), NodeId(3)}};
  EXPECT_EQ(memoryByModule(c.graph, partition.stages[0], c.profile), (std::vector<ModuleMemory>{first[0], {"blocks.0", 0, weight}}));
}

TEST(PlanMemory, CountsTheTargetsOfALossLikeInputs) {
  const ModelGraph graph = loadModel({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"});
  const TensorMeta& output = *graph.value(graph.outputs.front()).tensor;
  ASSERT_EQ(output.sizes.size(), 3U);  // batch, position, class
  const std::int64_t positions = output.sizes[1].hint, classes = output.sizes[2].hint;
  EXPECT_EQ(targetBytes(graph, {LossKind::CrossEntropy, {}}, 3), 3 * positions * 8);
  EXPECT_EQ(targetBytes(graph, {LossKind::MeanSquaredError, {}}, 3), 3 * positions * classes * 4);
  EXPECT_EQ(targetBytes(graph, {LossKind::Sum, {}}, 3), 0);
  const Profile profile = estimate(graph, 2, loadCluster("h100-nvlink"));
  PlanRequest request;
  request.ranks = 2;
  request.microbatches = 4;
  request.microbatch = 2;
  request.begins = balancedSplits(graph, profile, 2, Balance::Time);
  const Schedule rows = planRows(generate("1f1b", {2, 2, 4}), 1);
  const auto peakWith = [&](LossKind loss) {
    request.loss.kind = loss;
    CompiledRows compiled(rows);
    return compiled.peaks(price(request, graph, profile, rows).costs);
  };
  const std::vector<Bytes> without = peakWith(LossKind::Sum), with = peakWith(LossKind::MeanSquaredError);
  EXPECT_EQ(with[0], without[0]);
  EXPECT_EQ(with[1], without[1] + 4 * targetBytes(graph, request.loss, 2)) << "of all microbatches";
}

TEST(PlanMemory, SaysWhatAChangedPlanTakes) {
  struct Planned {
    int replicas;
    const char* schedule;
    std::int64_t batch;  ///< 7: the last microbatch has one sample
  };
  for (const auto& [replicas, planned, batch] : {Planned{1, "1f1b", 8}, {2, "1f1b", 16}, {1, "gpipe", 8}, {1, "1f1b", 7}}) {
    const int copies = replicas;  // for the lambda
    Case c = madeCase(replicas);
    c.request.schedule = planned;
    c.request.batch = batch;
    ModelCosts model(c.graph, c.profile, c.request.microbatch);
    const Schedule rows = planRows(generate(c.request.schedule, {2, 2, 4}), replicas);
    const Priced priced = price(c.request, c.graph, c.profile, rows);
    const PlanMemory memory = memoryOf(c.request, model, rows, priced.partition);
    const auto measured = [&](const Partition& partition, int shards) {
      CostTable costs = costTable(c.graph, partition, c.profile, rows.placement, copies);
      costs.stages.back().dataBytes += targetBytes(c.graph, c.request.loss, c.request.microbatch);
      costs.microbatchScale = microbatchScale(c.request, 0);
      addOptimizerState(costs, 2, shards);
      return metricsOf(simulate(rows, costs));
    };
    const Metrics now = measured(priced.partition, 1);
    EXPECT_EQ(memory.step, now.step);
    ASSERT_EQ(memory.ranks.size(), 2U);
    for (std::size_t r = 0; r < 2; ++r) EXPECT_EQ(memory.ranks[r].peak, now.ranks[r].peakBytes);
    bool recomputes = false, shards = false, otherSchedule = false;
    const Bytes most = std::max(now.ranks[0].peakBytes, now.ranks[1].peakBytes);
    for (const MemorySaving& saving : memory.savings) {
      Partition partition = priced.partition;
      const bool recompute = saving.by == MemorySaving::By::Recomputing;
      if (saving.by == MemorySaving::By::Schedule || saving.by == MemorySaving::By::Splits) {
        PlanRequest other = c.request;
        if (saving.by == MemorySaving::By::Splits)
          other.begins = balancedSplits(c.graph, c.profile, 2, Balance::Memory);
        else
          other.schedule = saving.schedule;
        const Schedule otherRows = planRows(generate(other.schedule, {2, 2, 4}), replicas);
        CostTable costs = price(other, c.graph, c.profile, otherRows).costs;
        addOptimizerState(costs, 2, 1);
        const Metrics then = metricsOf(simulate(otherRows, costs));
        EXPECT_EQ(saving.step, then.step);
        EXPECT_EQ(now.ranks[saving.rank.index()].peakBytes, most);
        EXPECT_LT(std::max(then.ranks[0].peakBytes, then.ranks[1].peakBytes), most) << saving.schedule;
        EXPECT_EQ(saving.freed, most - then.ranks[saving.rank.index()].peakBytes) << saving.schedule;
        otherSchedule = otherSchedule || saving.by == MemorySaving::By::Schedule;
        continue;
      }
      if (recompute) {
        StageSpec& stage = partition.stages[saving.stage.index()];
        stage.checkpoints = {{stage.begin, stage.end}};
      }
      const Metrics then = measured(partition, recompute ? 1 : replicas);
      EXPECT_EQ(saving.step, then.step);
      Bytes freed = 0;
      for (std::size_t r = 0; r < 2; ++r) freed = std::max(freed, now.ranks[r].peakBytes - then.ranks[r].peakBytes);
      EXPECT_EQ(saving.freed, freed);
      EXPECT_EQ(saving.freed, now.ranks[saving.rank.index()].peakBytes - then.ranks[saving.rank.index()].peakBytes);
      recomputes = recomputes || recompute;
      shards = shards || !recompute;
    }
    EXPECT_TRUE(recomputes);
    EXPECT_EQ(shards, replicas > 1);
    EXPECT_TRUE(otherSchedule || c.request.schedule != "gpipe") << "GPipe keeps all microbatches, 1F1B few";
    EXPECT_TRUE(std::ranges::is_sorted(memory.savings, {}, [&](const MemorySaving& s) {
      return static_cast<double>(std::max<Ns>(0, s.step - now.step)) / static_cast<double>(s.freed);
    })) << "the cheapest byte first";
  }
}

/// Both ranks of Chimera hold both stages, and so share AdamW's two numbers for each of three weights of 64 bytes without any replica.
TEST(PlanMemory, SharesTheOptimizerOfRanksThatHoldAStageTogether) {
  Case c = madeCase(1);
  c.request.schedule = "chimera";
  ModelCosts model(c.graph, c.profile, c.request.microbatch);
  const Schedule rows = planRows(generate("chimera", {2, 2, 4}), 1);
  const auto zero1Of = [&](const PlanRequest& request) {
    const PlanMemory memory = memoryOf(request, model, rows, price(request, c.graph, c.profile, rows).partition);
    std::vector<MemorySaving> savings;
    std::ranges::copy_if(memory.savings, std::back_inserter(savings), [](const auto& s) { return s.by == MemorySaving::By::Zero1; });
    return savings;
  };
  const std::vector<MemorySaving> offered = zero1Of(c.request);
  ASSERT_EQ(offered.size(), 1U);
  EXPECT_EQ(offered.front().freed, 2 * (3 * 64) / 2) << "half of the state";
  c.request.zero1 = true;
  EXPECT_TRUE(zero1Of(c.request).empty()) << "it does already";
}

}  // namespace
}  // namespace pw::test
