// What an operator costs, what has no rule, and sizes that depend on data.
#include "simulator/costs/operator_costs.h"
#include "simulator/costs/expected_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "schedules/error.h"
#include "simulator/costs/estimate.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/partition/module_tree.h"
#include "simulator/partition/partition.h"
#include "simulator/partition/split.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TensorMeta shape(const std::vector<std::int64_t>& sizes, DType dtype = DType::Float32) { return GraphBuilder::shape(sizes, dtype); }

double flopsOf(const std::string& op, const std::vector<std::pair<std::string, TensorMeta>>& tensors, const TensorMeta& out,
               std::vector<NamedArgument> others = {}) {
  GraphBuilder b;
  std::vector<NamedArgument> arguments = std::move(others);
  for (const auto& [name, meta] : tensors) arguments.push_back({name, b.input(name, meta)});
  const ModelGraph graph = b.done(b.call(op, arguments, "out", out));
  return forwardFlops(graph, graph.nodes[0], {{"b", 2}}).value();
}

/// Calls whose tensors come as one list.
double flopsOfList(const std::string& op, const std::string& list, const std::vector<TensorMeta>& tensors, const TensorMeta& out,
                   const std::vector<std::pair<std::string, TensorMeta>>& alone, std::vector<NamedArgument> others) {
  GraphBuilder b;
  std::vector<ValueId> ids;
  for (const TensorMeta& meta : tensors) ids.push_back(b.input("i" + std::to_string(ids.size()), meta));
  others.push_back({list, ids});
  for (const auto& [name, meta] : alone) others.push_back({name, b.input(name, meta)});
  const ModelGraph graph = b.done(b.call(op, others, "out", out));
  return forwardFlops(graph, graph.nodes[0], {{"b", 2}}).value();
}

TEST(OperatorFlops, AreUnknownWhereASizeThatTheyNeedDependsOnData) {
  const SymbolicInt rows{6, "Symbol('u0', integer=True)"};
  const auto flopsOfRows = [&](const std::string& op, const Bindings& bindings) {
    GraphBuilder b;
    const ValueId x = b.input("x", {DType::Float32, {rows, {4, ""}}, false, {}}), w = b.input("w", shape({4, 5}));
    const ModelGraph graph = b.done(b.call(op, {{"self", x}, {"mat2", w}}, "out", {DType::Float32, {rows, {5, ""}}, true, {}}));
    return forwardFlops(graph, graph.nodes[0], bindings);
  };
  EXPECT_EQ(flopsOfRows("mm", {}), std::nullopt);
  EXPECT_EQ(flopsOfRows("mm", {{"u0", 7}}), 2.0 * 7 * 4 * 5);
  EXPECT_EQ(flopsOfRows("relu", {}), 0) << "which needs no size";
}

TEST(OperatorFlops, OfExpertsInOneGroupedProductAreThoseOfEachRowAndItsOwnExpert) {
  // 12 rows of width 8 meet one of 4 experts [8, 16] each.
  const double rows = 2.0 * 12 * 8 * 16;
  EXPECT_EQ(flopsOf("_grouped_mm", {{"self", shape({12, 8})}, {"mat2", shape({4, 8, 16})}}, shape({12, 16})), rows);
  EXPECT_EQ(flopsOf("torch.ops.transformers.grouped_mm_fallback.default", {{"input", shape({12, 8})}, {"weight", shape({4, 8, 16})}},
                    shape({12, 16})),
            rows);
  // Weight gradients: [8, 12] · [12, 16] with the 12 in 4 groups.
  EXPECT_EQ(flopsOf("_grouped_mm", {{"self", shape({8, 12})}, {"mat2", shape({12, 16})}}, shape({4, 8, 16})), rows);
}

TEST(OperatorFlops, OfRecurrentLayersAreTheirMatricesAtEachTimeStep) {
  // 3 samples of 5 steps, width 4 to 6: W_ih [24, 4] and W_hh [24, 6], biases are not products.
  const std::vector<TensorMeta> parameters{shape({24, 4}), shape({24, 6}), shape({24}), shape({24})};
  EXPECT_EQ(flopsOfList("lstm", "params", parameters, shape({3, 5, 6}), {{"input", shape({3, 5, 4})}}, {}), 2.0 * 3 * 5 * 24 * (4 + 6));
  EXPECT_EQ(flopsOf("gru_cell", {{"input", shape({3, 4})}, {"w_ih", shape({18, 4})}, {"w_hh", shape({18, 6})}}, shape({3, 6})),
            2.0 * 3 * 18 * (4 + 6));
}

TEST(OperatorFlops, OfEinsumAreThoseOfItsPairsFromLeftToRight) {
  const auto einsum = [&](const std::string& equation, const std::vector<TensorMeta>& tensors, const TensorMeta& out) {
    return flopsOfList("einsum", "tensors", tensors, out, {}, {{"equation", equation}});
  };
  EXPECT_EQ(einsum("bix,iox->box", {shape({2, 3, 5}), shape({3, 4, 5})}, shape({2, 4, 5})), 2.0 * 2 * 3 * 4 * 5);
  EXPECT_EQ(einsum("ij, jk", {shape({2, 3}), shape({3, 4})}, shape({2, 4})), 2.0 * 2 * 3 * 4);
  EXPECT_EQ(einsum("ij,jk,kl->il", {shape({2, 3}), shape({3, 4}), shape({4, 5})}, shape({2, 5})), 2.0 * (2 * 3 * 4 + 2 * 4 * 5));
  EXPECT_EQ(einsum("...ij,...jk->...ik", {shape({7, 2, 3}), shape({7, 3, 4})}, shape({7, 2, 4})), 2.0 * 7 * 2 * 3 * 4);
  EXPECT_EQ(einsum("ii->i", {shape({4, 4})}, shape({4})), 0) << "no product";
}

TEST(OperatorFlops, OfTransformsAndBags) {
  // 5 N log2 N: 6 transforms of 8 complex points; half for real ones, also where the dimensions are not the last.
  EXPECT_EQ(flopsOf("fft_fft", {{"self", shape({6, 8}, DType::ComplexFloat)}}, shape({6, 8}, DType::ComplexFloat)), 6 * 5.0 * 8 * 3);
  EXPECT_EQ(flopsOf("fft_rfft", {{"self", shape({6, 8})}}, shape({6, 5}, DType::ComplexFloat)), 6 * 2.5 * 8 * 3);
  EXPECT_EQ(flopsOf("fft_irfft", {{"self", shape({6, 5}, DType::ComplexFloat)}}, shape({6, 8})), 6 * 2.5 * 8 * 3);
  EXPECT_EQ(flopsOf("fft_rfft2", {{"self", shape({3, 4, 8})}}, shape({3, 4, 5}, DType::ComplexFloat)), 3 * 2.5 * 32 * 5);
  // 10 rows of width 4 are added up, each times its weight in the second call.
  EXPECT_EQ(flopsOf("embedding_bag", {{"weight", shape({20, 4})}, {"indices", shape({10}, DType::Int64)}}, shape({5, 4})), 10 * 4);
  EXPECT_EQ(
      flopsOf("embedding_bag", {{"weight", shape({20, 4})}, {"indices", shape({10}, DType::Int64)}, {"per_sample_weights", shape({10})}},
              shape({5, 4})),
      2 * 10 * 4);
}

/// A `cond` of a small and a large product, then an operator nobody knows.
ModelGraph branching() {
  GraphBuilder b;
  const ValueId x = b.input("x", shape({6, 4})), w = b.parameter("w"), wide = b.parameter("wide", "", true, shape({4, 32})),
                back = b.parameter("back", "", true, shape({32, 4}));
  const auto branch = [&](const std::vector<std::pair<ValueId, std::int64_t>>& products) {
    std::vector<Node> nodes;
    ValueId left = x;
    for (const auto& [right, columns] : products) {
      const ValueId out = b.op("mm", {left, right}, "inside" + std::to_string(b.graph().values.size()), shape({6, columns}));
      b.graph().nodes.back().inputs = {{"self", left}, {"mat2", right}};
      nodes.push_back(b.graph().nodes.back());
      b.graph().nodes.pop_back();
      left = out;
    }
    b.graph().subgraphs.push_back({{x, w, wide, back}, {left}, nodes});
    return GraphArg{b.graph().subgraphs.size() - 1};
  };
  const GraphArg small = branch({{w, 4}}), large = branch({{wide, 32}, {back, 4}});
  b.within({"router"});
  const ValueId chosen =
      b.call("torch.ops.higher_order.cond", {{"", true}, {"", small}, {"", large}, {"", std::vector<ValueId>{x, w, wide, back}}}, "chosen",
             shape({6, 4}));
  b.within({"tail"});
  const ValueId once = b.call("torch.ops.mylib.mix.default", {{"x", chosen}}, "once", shape({6, 4}));
  return b.done(b.call("torch.ops.mylib.mix.default", {{"x", once}}, "twice", shape({6, 4})));
}

TEST(NotCounted, ABranchCostsTheLargerOneAndUnknownOperatorsAreListed) {
  const ModelGraph graph = branching();
  const double large = 2.0 * 6 * 4 * 32 * 2;
  EXPECT_EQ(forwardFlops(graph, graph.nodes[0], {}), large);
  EXPECT_EQ(moduleTree(graph, {}).front().forwardFlops, large) << "inspect counts a sub-graph once";
  const std::vector<NotCounted> missing = notCounted(graph, exportedBatch(graph));
  EXPECT_THAT(missing, ElementsAre(NotCounted{"torch.ops.mylib.mix.default", "tail", "no rule for its cost", 2}));
  EXPECT_EQ(notCountedText(missing), "not counted: 2 × torch.ops.mylib.mix.default in tail (no rule for its cost)");
}

TEST(NotCounted, OperatorsCountedByBytesAndViewsAreNot) {
  GraphBuilder b;
  const ValueId a = b.op("gelu", {b.input("x")}, "a"), c = b.op("add_", {a, a}, "c"), d = b.op("view", {c}, "d");
  EXPECT_THAT(notCounted(b.done(b.op("softmax", {d}, "e")), 2), IsEmpty());
}

TEST(NotCounted, ALoopIsCountedOnceAndSaid) {
  GraphBuilder b;
  const ValueId x = b.input("x"), y = b.op("relu", {x}, "y");
  const Node inner = b.graph().nodes.back();
  b.graph().nodes.clear();
  for (int i = 0; i < 2; ++i) b.graph().subgraphs.push_back({{x}, {y}, {inner}});
  const ValueId out = b.call("torch.ops.higher_order.while_loop",
                             {{"", GraphArg{0}}, {"", GraphArg{1}}, {"", std::vector<ValueId>{x}}, {"", NoneArg{}}}, "out");
  EXPECT_THAT(notCountedText(notCounted(b.done(out), 2)), HasSubstr("while_loop (one iteration counted"));
}

/// Tokens of one of 4 experts, two of which each token goes to: `where(topk's indices == 1)`; or of a mask nobody can foresee.
ModelGraph expert(bool routed) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), scores = b.op("softmax", {x}, "scores");
  const ValueId chosen = b.call("topk", {{"self", scores}, {"k", std::int64_t{2}}}, "chosen",
                                GraphBuilder::meta({GraphBuilder::batch(), {2, ""}}, DType::Int64));
  const ValueId mask = b.call(routed ? "eq" : "gt", {{"self", routed ? chosen : x}, {"other", std::int64_t{1}}}, "mask",
                              GraphBuilder::meta({GraphBuilder::batch(), {2, ""}}, DType::Bool));
  const ValueId token = b.call("where", {{"condition", mask}}, "token", GraphBuilder::meta({GraphBuilder::dataDependent()}, DType::Int64));
  const TensorMeta rows = GraphBuilder::meta({GraphBuilder::dataDependent(), {4, ""}});
  const ValueId picked = b.call("index", {{"self", x}, {"indices", std::vector<std::optional<ValueId>>{token}}}, "picked", rows);
  const ValueId made = b.call("linear", {{"input", picked}, {"weight", w}}, "made", rows);
  return b.done(b.op("index_add", {x, token, made}, "out"));
}

TEST(ExpectedSizes, AnExpertGetsItsPartOfTheRoutedTokens) {
  const ModelGraph graph = expert(true);
  // 64 tokens to 2 of 4 experts: 32 for each.
  EXPECT_EQ(bindExpected(graph, 64).at("u0"), 32);
  EXPECT_THAT(notCounted(graph, 64), IsEmpty());
  Cluster cluster;
  cluster.peakFlops["fp32"] = 1e9;
  const Profile profile = estimate(graph, 64, cluster);
  EXPECT_EQ(profile.nodes[5].flops, 2.0 * 32 * 4 * 4);
  EXPECT_GT(profile.nodes[5].forward, 0);
}

TEST(ExpectedSizes, WhatCannotBeExpectedIsListedAndNeverSilentlyNothing) {
  const ModelGraph graph = expert(false);
  EXPECT_FALSE(bindExpected(graph, 64).contains("u0"));
  EXPECT_THAT(notCountedText(notCounted(graph, 64)), HasSubstr("linear (its size is data-dependent)"));
}

/// A number read from data before node 2 and used after it.
ModelGraph readNumber(bool fromWeights) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId y = b.op("linear", {x, w}, "y");
  const ValueId sum = b.op("sum", {fromWeights ? y : x}, "sum", shape({}, DType::Int64));
  const ValueId number = b.call("item", {{"self", sum}}, "number");
  b.graph().values[number.index()].tensor.reset();
  b.graph().values[number.index()].symbolic = GraphBuilder::dataDependent();
  const ValueId z = b.op("linear", {y, w}, "z");
  return b.done(b.op("mul", {z, number}, "out"));
}

TEST(NumbersOfData, SplitPointsAvoidWhereOneWouldCrossAndAnExplicitSplitThereIsRefused) {
  const ModelGraph graph = readNumber(true);
  Cluster cluster;
  cluster.peakFlops["fp32"] = 1e9;
  // Only before `sum` (@1 and @2 keep item and mul together).
  for (const int at : {3, 4}) {
    try {
      static_cast<void>(cutGraph(graph, {NodeId(at)}, {{"b", 2}}, nullptr));
      ADD_FAILURE() << "no refusal at " << at;
    } catch (const UsageError& e) {
      EXPECT_THAT(e.what(), HasSubstr("Number number depends on data and is used by stage 1"));
      EXPECT_THAT(e.what(), HasSubstr("move the split point"));
    }
  }
  const std::vector<NodeId> begins = balancedSplits(graph, estimate(graph, 2, cluster), 2, Balance::Time);
  ASSERT_EQ(begins.size(), 1U);
  EXPECT_LT(begins[0], NodeId(3));
  EXPECT_NO_THROW(static_cast<void>(cutGraph(graph, begins, {{"b", 2}}, nullptr)));
}

TEST(NumbersOfData, OneOfTheModelsInputsIsReadAgainOnTheOtherSide) {
  const Partition parts = cutGraph(readNumber(false), {NodeId(3)}, {{"b", 2}}, nullptr);
  EXPECT_THAT(parts.stages[1].recomputed, ElementsAre(NodeId(1), NodeId(2)));
}

TEST(NumbersOfData, AnAssertionAcrossACutNeedsNothing) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w"), y = b.op("linear", {x, w}, "y");
  const ValueId sum = b.op("sum", {y}, "sum", GraphBuilder::meta({GraphBuilder::dataDependent()}));
  const ValueId z = b.op("linear", {y, w}, "z");
  b.op("_assert_async", {sum}, "checked");
  const Partition parts = cutGraph(b.done(b.op("relu", {z}, "out")), {NodeId(2)}, {{"b", 2}}, nullptr);
  ASSERT_EQ(parts.transfers.size(), 1U);
  EXPECT_EQ(parts.transfers[0].value, y);
}

}  // namespace
}  // namespace pw::test
