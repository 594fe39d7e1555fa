#include "simulator/costs/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "simulator/costs/estimate.h"
#include "simulator/costs/rank_profiles.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

/// Two heads, three queries, five keys, of eight numbers: 30 scores.
struct Sizes {
  TensorMeta query = GraphBuilder::shape({2, 3, 8}), key = GraphBuilder::shape({2, 8, 5}), scores = GraphBuilder::shape({2, 3, 5}),
             value = GraphBuilder::shape({2, 5, 8});
};

/// softmax(q · kᵀ · scale) · v, written as products; `alsoRead`: the scores are an output of the model, too.
ModelGraph products(bool alsoRead) {
  const Sizes sizes;
  GraphBuilder b;
  const ValueId x = b.input("x", sizes.query), y = b.input("y", sizes.key), z = b.input("z", sizes.value);
  const ValueId q = b.op("sin", {x}, "q", sizes.query), k = b.op("sin", {y}, "k", sizes.key), v = b.op("sin", {z}, "v", sizes.value);
  const ValueId raw = b.call("bmm", {{"self", q}, {"mat2", k}}, "raw", sizes.scores);
  const ValueId scaled = b.op("mul", {raw, b.constant("scale")}, "scaled", sizes.scores);
  const ValueId probabilities = b.op("softmax", {scaled}, "probabilities", sizes.scores);
  const ValueId dropped = b.op("dropout", {probabilities}, "dropped", sizes.scores);
  if (alsoRead) b.output(scaled);
  return b.done(b.call("bmm", {{"self", dropped}, {"mat2", v}}, "mixed", sizes.query));
}

ModelGraph fusedOperator() {
  const Sizes sizes;
  GraphBuilder b;
  const TensorMeta key = GraphBuilder::shape({2, 5, 8});
  const ValueId x = b.input("x", sizes.query), y = b.input("y", key), z = b.input("z", key);
  const ValueId q = b.op("sin", {x}, "q", sizes.query), k = b.op("sin", {y}, "k", key), v = b.op("sin", {z}, "v", key);
  return b.done(b.call("scaled_dot_product_attention", {{"query", q}, {"key", k}, {"value", v}}, "mixed", sizes.query));
}

/// A byte and a FLOP take a ns, a launch 100.
Cluster cluster() {
  Cluster c;
  c.name = "test";
  c.peakFlops = {{"fp32", 1e9}, {"bf16", 2e9}, {"fp8", 4e9}};
  c.memoryBytesPerSecond = 1e9;
  c.launchOverhead = 100;
  return c;
}

std::vector<std::string> namesOf(const ModelGraph& graph, const std::vector<bool>& chosen) {
  std::vector<std::string> names;
  for (std::size_t v = 0; v < chosen.size(); ++v) {
    if (chosen[v]) names.push_back(graph.values[v].name);
  }
  return names;
}

TEST(FusedAttention, KeepsWhatIsBetweenItsProductsInRegisters) {
  const ModelGraph graph = products(false);
  EXPECT_EQ(namesOf(graph, fusedAttentionValues(graph)), (std::vector<std::string>{"raw", "scaled", "probabilities", "dropped"}));
}

TEST(FusedAttention, IsNotWhereOthersReadTheScoresOrParametersArePlaced) {
  const ModelGraph read = products(true);
  EXPECT_TRUE(namesOf(read, fusedAttentionValues(read)).empty());
  GraphBuilder b;  // a classifier: softmax of a linear layer
  const ValueId logits = b.op("linear", {b.input("x"), b.parameter("w")}, "logits");
  const ModelGraph classifier = b.done(b.op("softmax", {logits}, "p"));
  EXPECT_TRUE(namesOf(classifier, fusedAttentionValues(classifier)).empty());
  EXPECT_TRUE(namesOf(fusedOperator(), fusedAttentionValues(fusedOperator())).empty()) << "one operator already";
}

TEST(FusedAttention, CostsItsProductsAndWhatGoesInAndOut) {
  const ModelGraph graph = products(false);
  const Profile traced = estimate(graph, 2, cluster()), fused = estimate(graph, 2, cluster(), DType::Unknown, Attention::Fused);
  // Nodes 0 to 2 are the sines. bmm: 2 · 2 · 3 · 5 · 8 = 480 FLOPs; it reads 192 + 320 bytes and writes 30 scores, 120 bytes.
  EXPECT_EQ(traced.nodes[3].forward, 192 + 320 + 120 + 100);
  EXPECT_EQ(fused.nodes[3].forward, 192 + 320 + 100);
  for (const std::size_t n : {4U, 5U, 6U}) EXPECT_EQ(fused.nodes[n], NodeCost{}) << n;
  EXPECT_EQ(traced.nodes[7].forward, 120 + 320 + 192 + 100);
  EXPECT_EQ(fused.nodes[7].forward, 320 + 192 + 100);
  EXPECT_EQ(fused.attention, Attention::Fused);
}

TEST(UnfusedAttention, WritesScoresAndProbabilities) {
  const ModelGraph graph = fusedOperator();
  const Profile traced = estimate(graph, 2, cluster()), unfused = estimate(graph, 2, cluster(), DType::Unknown, Attention::Unfused);
  EXPECT_EQ(attentionScores(graph, graph.nodes[3], {}), 30);
  EXPECT_EQ(attentionScores(graph, graph.nodes[0], {}), 0);
  EXPECT_EQ(unfused.nodes[3].forwardPeak - traced.nodes[3].forwardPeak, 2 * 120) << "scores and probabilities";
  // 960 FLOPs, or 192 + 320 + 320 + 192 bytes: memory decides; 4 · 120 bytes of scores more, and three kernels.
  EXPECT_EQ(traced.nodes[3].forward, 1024 + 100);
  EXPECT_EQ(unfused.nodes[3].forward, 1024 + 480 + 300);
  const Profile casted = estimate(graph, 2, cluster(), DType::BFloat16, Attention::Unfused);
  // All inputs are read and their copies written, then 16 bits of each number.
  EXPECT_EQ(casted.nodes[3].forward, 2 * 832 + 96 + 4 * 60 + 300);
  EXPECT_EQ(unfused.nodes[3].saved - traced.nodes[3].saved, 0) << "inputs need no gradient";
}

TEST(Attention, HasNames) {
  for (const Attention attention : {Attention::AsTraced, Attention::Fused, Attention::Unfused}) {
    EXPECT_EQ(valueNamed<Attention>(nameOf(attention)), attention);
    Profile profile;
    profile.attention = attention;
    EXPECT_EQ(parseProfile(toJson(profile), "p.json"), profile);
  }
  EXPECT_EQ(valueNamed<Attention>("flash"), std::nullopt);
}

TEST(Estimate, ComputesLinearLayersInEightBits) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId h = b.call("linear", {{"input", x}, {"weight", w}}, "h");
  const ModelGraph graph = b.done(b.op("relu", {h}, "y"));
  Cluster c = cluster();
  c.memoryBytesPerSecond = 0;  // products alone
  c.efficiency = {{"default", {{1, 0.5}}}, {"fp8", {{1, 0.25}}}};
  // 2 · 3 · 4 · 4 = 96 FLOPs
  EXPECT_EQ(estimate(graph, 3, c).nodes[0].forward, 96 * 2 + 100);
  EXPECT_EQ(estimate(graph, 3, c, DType::BFloat16).nodes[0].forward, 96 * 2 / 2 + 100);
  const Profile eight = estimate(graph, 3, c, DType::Float8);
  EXPECT_EQ(eight.nodes[0].forward, 96 * 4 / 4 + 100);
  EXPECT_EQ(eight.peakFlops, 4e9);
  EXPECT_EQ(eight.computing.precision, DType::Float8);
  c.memoryBytesPerSecond = 1e8;  // bytes alone: 48 and 64 in 8 bits of 32, cast from 48 in 32 before; 48 out in 16
  c.memoryEfficiency = 0.5;
  // bf16: x is read and its copy written (96), w was copied before (32), h written (24); fp8: half of what is read.
  EXPECT_EQ(estimate(graph, 3, c, DType::BFloat16).nodes[0].forward, 20 * (96 + 32 + 24) + 100);
  EXPECT_EQ(estimate(graph, 3, c, DType::Float8).nodes[0].forward, 20 * (48 + 16 + 24) + 100);
}

TEST(FlopUtilisation, IsWorkOverPeak) {
  Profile profile;
  profile.microbatch = 2;
  profile.peakFlops = 1e9;  // one FLOP a ns
  profile.nodes.resize(2);
  profile.nodes[0].flops = 60;
  profile.nodes[1].flops = 40;
  // Three times 50 FLOPs a sample, 8 samples: 1,200 ns of one device.
  EXPECT_DOUBLE_EQ(flopUtilisation(profile, 8, 2'400, 1), 0.5);
  EXPECT_DOUBLE_EQ(flopUtilisation(profile, 8, 1'200, 4), 0.25);
  profile.topology.ranks = {{1, 0, 0}, {0.5, 0, 0}};
  EXPECT_DOUBLE_EQ(flopUtilisation(profile, 8, 1'200, 2), 1 / 1.5) << "of what the slow one could do";
  profile.backwardFlops = 50;  // of a quarter of the factors: the others are frozen
  EXPECT_DOUBLE_EQ(flopUtilisation(profile, 8, 600, 2), 1 / 1.5);
  EXPECT_DOUBLE_EQ(modelFlops(profile, 8, true), 600);
  EXPECT_DOUBLE_EQ(modelFlops(profile, 8, false), 400);
  EXPECT_EQ(parseProfile(toJson(profile), "p.json").backwardFlops, 50);
  EXPECT_EQ(scaledProfile(profile, 1).backwardFlops, 25);
  profile.peakFlops = 0;
  EXPECT_EQ(flopUtilisation(profile, 8, 1'200, 1), 0);
}

}  // namespace
}  // namespace pw::test
