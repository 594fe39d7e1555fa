// Estimates in 16 bits and the bytes that each parameter takes, by closed forms.

#include "simulator/model/autocast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "schedules/generate.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/profile.h"
#include "simulator/partition/stage_costs.h"
#include "simulator/plan/planner.h"
#include "simulator/step/compile.h"
#include "simulator/step/program.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

constexpr std::int64_t kWidth = 1024;

/// 1 TFLOP/s in float32 and 8 in bfloat16 at any size, memory that never limits.
Cluster cluster() {
  Cluster c;
  c.name = "test";
  c.peakFlops = {{"fp32", 1e12}, {"bf16", 8e12}, {"fp16", 4e12}};
  c.memoryBytesPerSecond = 1e15;
  return c;
}

TensorMeta square() { return GraphBuilder::shape({kWidth, kWidth}); }

/// Layers of linear, [1024, 1024] · [1024, 1024].
ModelGraph products(int layers) {
  GraphBuilder b;
  ValueId x = b.input("x", square());
  for (int i = 0; i < layers; ++i) {
    const ValueId w = b.parameter("blocks." + std::to_string(i) + ".weight", "", true, square());
    x = b.within({"blocks." + std::to_string(i)}).call("linear", {{"input", x}, {"weight", w}}, "linear_" + std::to_string(i), square());
  }
  return b.done(x);
}

PlanRequest request(std::vector<NodeId> begins, int copies) {
  PlanRequest r;
  r.microbatch = kWidth;  // dimension 0 of the input, which is fixed
  r.microbatches = 4;
  r.begins = std::move(begins);
  if (copies > 0) r.optimizer.kind = OptimizerSpec::Kind::AdamW;
  return r;
}

Bytes peakOf(const PlanRequest& r, const ModelGraph& graph, const Profile& profile, int rank) {
  const Schedule rows = planRows(generate("1f1b", {2, 2, 4}), r.replicas);
  CostTable costs = price(r, graph, profile, rows).costs;
  addOptimizerState(costs, stateCopies(r.optimizer), optimizerShards(r, rows.placement));
  return compile(rows, costs).peakBytes[static_cast<std::size_t>(rank)];
}

TEST(Autocast, ComputesProductsAtThePeakOfItsType) {
  const ModelGraph graph = products(2);
  const double flops = 2.0 * kWidth * kWidth * kWidth;
  EXPECT_EQ(estimate(graph, kWidth, cluster()).nodes[0].forward, static_cast<Ns>(flops / 1e12 * 1e9 + 0.5));
  EXPECT_EQ(estimate(graph, kWidth, cluster(), DType::BFloat16).nodes[0].forward, static_cast<Ns>(flops / 8e12 * 1e9 + 0.5))
      << "the ratio of the peaks";
  EXPECT_EQ(estimate(graph, kWidth, cluster(), DType::Float16).nodes[1].forward, static_cast<Ns>(flops / 4e12 * 1e9 + 0.5));
  EXPECT_EQ(estimate(graph, kWidth, cluster(), DType::BFloat16).computing.precision, DType::BFloat16);
  Cluster without = cluster();
  without.peakFlops.erase("bf16");
  EXPECT_EQ(usageErrorOf([&] { static_cast<void>(estimate(graph, kWidth, without, DType::BFloat16)); }),
            "Cluster test has no peak in bf16; add bf16 to its peak_flops, or omit --precision.");
}

TEST(Autocast, HalvesWhatProductsMakeAndKeep) {
  // linear → relu → layer_norm → linear → add with the norm's result
  GraphBuilder b;
  const ValueId x = b.input("x", square()), w = b.parameter("w", "", true, square()), v = b.parameter("v", "", true, square()),
                g = b.parameter("g", "", true, GraphBuilder::shape({kWidth}));
  const ValueId h = b.call("linear", {{"input", x}, {"weight", w}}, "h", square());
  const ValueId r = b.op("relu", {h}, "r", square());
  const ValueId n = b.op("layer_norm", {r, g}, "n", square());
  const ValueId y = b.call("linear", {{"input", n}, {"weight", v}}, "y", square());
  const ModelGraph graph = b.done(b.op("add", {y, n}, "z", square()));
  const Bytes full(4 * kWidth * kWidth);
  const auto estimated = [&](DType precision) {  // without a loss, which takes the output
    return estimate(graph, kWidth, cluster(), precision, Attention::AsTraced, Loss{LossKind::Sum});
  };
  const Profile wide = estimated(DType::Unknown), half = estimated(DType::BFloat16);
  const auto saved = [](const Profile& profile) {
    std::vector<Bytes> list;
    for (const NodeCost& node : profile.nodes) list.push_back(node.saved);
    return list;
  };
  const Bytes none = 0;
  EXPECT_THAT(saved(wide), testing::ElementsAre(none, full, full, none, none))
      << "relu keeps its result, which the norm needs, too, and the product the norm's; a sum keeps nothing";
  EXPECT_THAT(saved(half), testing::ElementsAre(full / 2, full / 2 + full, full / 2, none, none))
      << "the copy of the model's input, relu's in 16 bits, the wide copy that the norm computes with, and the copy that the product casts";
  const AutocastTypes types = autocastTypes(graph, DType::BFloat16, {1, 0, 0, 1, 0});
  EXPECT_EQ(types.casts, (std::vector<bool>{true, false, false, true, false}));
  EXPECT_FALSE(types.isLower[n.index()]) << "norms compute in float32";
  static_cast<void>(y);
}

TEST(Autocast, KeepsTheCopyOfWhatOnlyProductsRead) {
  GraphBuilder b;
  const ValueId x = b.input("x", square()), w = b.parameter("w", "", true, square()),
                g = b.parameter("g", "", true, GraphBuilder::shape({kWidth}));
  const ValueId n = b.op("layer_norm", {x, g}, "n", square());
  const ModelGraph graph = b.done(b.call("linear", {{"input", n}, {"weight", w}}, "y", square()));
  EXPECT_EQ(estimate(graph, kWidth, cluster(), DType::BFloat16).nodes[0].saved, 2 * kWidth * kWidth);
}

TEST(Autocast, TakesEighteenBytesForEachParameterOfAProductWithAdamW) {
  // Float32 weights and gradients stay (4 + 4), Adam has two moments (8), and products read a copy in 16 bits (2).
  const ModelGraph graph = products(2);
  const Bytes parameters(kWidth * kWidth);  // of each stage
  const Profile wide = estimate(graph, kWidth, cluster()), half = estimate(graph, kWidth, cluster(), DType::BFloat16);
  const std::vector<NodeId> begins{NodeId(1)};
  EXPECT_EQ(peakOf(request(begins, 2), graph, wide, 0) - peakOf(request(begins, 0), graph, wide, 0), 8 * parameters);
  const Schedule rows = planRows(generate("1f1b", {2, 2, 4}), 1);
  const auto stateOf = [&](const Profile& profile, int copies) {
    CostTable costs = price(request(begins, copies), graph, profile, rows).costs;
    addOptimizerState(costs, copies, 1);
    const StageCost& s = costs.stages[0];
    return s.parameterBytes + s.gradientBytes + s.optimizerBytes + s.fixedBytes;
  };
  EXPECT_EQ(stateOf(wide, 2), 16 * parameters);
  EXPECT_EQ(stateOf(half, 2), 18 * parameters);
  EXPECT_EQ(stateOf(half, 1), 14 * parameters) << "SGD with momentum";
  EXPECT_EQ(stateOf(half, 0), 10 * parameters);
}

TEST(Autocast, TheOptimizersStateDecidesWhetherAPlanFitsAndReplicasShareIt) {
  const ModelGraph graph = products(2);
  const Profile profile = estimate(graph, kWidth, cluster(), DType::BFloat16);
  PlanRequest adam = request({NodeId(1)}, 2), sgd = request({NodeId(1)}, 0);
  adam.replicas = sgd.replicas = 4;
  const Bytes parameters(kWidth * kWidth);
  const Bytes limit = peakOf(sgd, graph, profile, 0) + 4 * parameters;
  EXPECT_LE(peakOf(sgd, graph, profile, 0), limit);
  EXPECT_GT(peakOf(adam, graph, profile, 0), limit) << "8 bytes more for each";
  adam.zero1 = true;
  EXPECT_EQ(peakOf(adam, graph, profile, 0), peakOf(sgd, graph, profile, 0) + 8 * parameters / 4) << "ZeRO-1 over four replicas";
  EXPECT_LE(peakOf(adam, graph, profile, 0), limit);
}

}  // namespace
}  // namespace pw::test
