// Which weight gradients are left for W. tests/backends/torch/split_backward_test.cpp holds this against the engine.
#include "simulator/model/weight_part.h"

#include <gtest/gtest.h>

#include "simulator/costs/estimate.h"
#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

/// The weight part of the last node.
WeightPart partOf(const ModelGraph& graph) {
  const std::vector<bool> gradient = needsGradient(graph);
  return weightPartOf(graph, graph.nodes.back(), wholeParameters(graph, gradient), gradient);
}

/// Of a call whose first tensor is computed from a parameter, and whose others are parameters.
WeightPart partOfCall(const std::string& op, const std::vector<std::pair<std::string, TensorMeta>>& tensors,
                      std::vector<NamedArgument> others = {}) {
  GraphBuilder b;
  std::vector<NamedArgument> arguments;
  for (const auto& [name, meta] : tensors) {
    const ValueId parameter = b.parameter(name, "", true, meta);
    arguments.push_back({name, arguments.empty() ? b.op("tanh", {parameter}, "x", meta) : parameter});
  }
  arguments.insert(arguments.end(), others.begin(), others.end());
  return partOf(b.done(b.call(op, arguments, "y")));
}

TensorMeta shape(const std::vector<std::int64_t>& sizes) { return GraphBuilder::shape(sizes); }

TEST(WeightPart, IsThatOfTheOperatorsRow) {
  EXPECT_EQ(partOfCall("linear", {{"input", shape({2, 4})}, {"weight", shape({3, 4})}, {"bias", shape({3})}}), WeightPart::Linear);
  EXPECT_EQ(partOfCall("conv2d", {{"input", shape({2, 4, 5, 5})}, {"weight", shape({3, 4, 3, 3})}}), WeightPart::Convolution);
  EXPECT_EQ(partOfCall("convolution", {{"input", shape({2, 4, 5})}, {"weight", shape({4, 3, 3})}}, {{"transposed", true}}),
            WeightPart::AnyConvolution);
  EXPECT_EQ(partOfCall("conv_transpose2d", {{"input", shape({2, 4, 5, 5})}, {"weight", shape({4, 3, 3, 3})}}), WeightPart::None);
  EXPECT_EQ(partOfCall("baddbmm", {{"self", shape({2, 3, 5})}, {"batch1", shape({2, 3, 4})}, {"batch2", shape({2, 4, 5})}}),
            WeightPart::None);
  EXPECT_EQ(partOfCall("add_", {{"self", shape({4})}, {"other", shape({4})}}), WeightPart::None) << "in place";
}

TEST(WeightPart, DependsOnShapesAndFlags) {
  const auto matmul = [](const std::vector<std::int64_t>& left, const std::vector<std::int64_t>& right) {
    return partOfCall("matmul", {{"self", shape(left)}, {"other", shape(right)}});
  };
  EXPECT_EQ(matmul({2, 3, 4}, {4, 5}), WeightPart::Product);
  EXPECT_EQ(matmul({2, 3, 4}, {2, 4, 5}), WeightPart::Product);
  EXPECT_EQ(matmul({2, 3, 4}, {4}), WeightPart::None) << "a vector";
  EXPECT_EQ(matmul({2, 2, 3, 4}, {2, 2, 4, 5}), WeightPart::None) << "two batch dimensions";
  const std::vector<std::pair<std::string, TensorMeta>> sum{{"self", shape({2, 4})}, {"other", shape({4})}};
  EXPECT_EQ(partOfCall("add", sum), WeightPart::Sum);
  EXPECT_EQ(partOfCall("add", sum, {{"alpha", std::int64_t{1}}}), WeightPart::Sum);
  EXPECT_EQ(partOfCall("add", sum, {{"alpha", std::int64_t{2}}}), WeightPart::None);
  const auto same = [](std::int64_t width) {
    return partOfCall("conv1d", {{"input", shape({2, 4, 9})}, {"weight", shape({3, 4, width})}}, {{"padding", std::string("same")}});
  };
  EXPECT_EQ(same(3), WeightPart::Convolution);
  EXPECT_EQ(same(4), WeightPart::None) << "more on one side than on the other";
}

TEST(WeightPart, IsOfOneInputAndWholeParametersOnly) {
  GraphBuilder b;
  const ValueId w = b.parameter("w"), x = b.op("tanh", {w}, "x");
  const auto mm = [&](ValueId left, ValueId right) {
    b.call("mm", {{"self", left}, {"mat2", right}}, "y");
    return partOf(b.graph());
  };
  EXPECT_EQ(mm(x, w), WeightPart::Product);
  EXPECT_EQ(mm(w, x), WeightPart::Product);
  EXPECT_EQ(mm(w, w), WeightPart::None) << "both operands";
  EXPECT_EQ(mm(x, b.op("t", {w}, "turned", shape({4, 4}))), WeightPart::Product);
  EXPECT_EQ(mm(x, b.op("slice", {w}, "part", shape({2, 4}))), WeightPart::None) << "a part of a parameter";
  EXPECT_EQ(mm(x, b.op("sin", {w}, "computed", shape({4, 4}))), WeightPart::None);
  EXPECT_EQ(mm(x, b.parameter("frozen", "", false)), WeightPart::None) << "nothing to leave";
  EXPECT_EQ(mm(b.input("i", shape({4, 4})), w), WeightPart::Product);
}

TEST(WeightPart, GivesTheEstimateItsW) {
  Cluster cluster;
  cluster.peakFlops["fp32"] = 1e9;
  const auto estimated = [&](const std::string& op, const std::string& left, const std::string& right) {
    GraphBuilder b;
    const TensorMeta batch = shape({2, 4, 4});
    const ValueId first = b.parameter("first", "", true, batch), w = b.parameter("w", "", true, batch);
    const ValueId x = b.op("tanh", {first}, "x", batch);
    std::vector<NamedArgument> arguments{{left, x}, {right, w}};
    if (op == "baddbmm") arguments.insert(arguments.begin(), {"self", b.input("summand", batch)});
    const ModelGraph graph = b.done(b.call(op, arguments, "y", batch));
    return estimate(graph, exportedBatch(graph), cluster).nodes.back();
  };
  const NodeCost bmm = estimated("bmm", "self", "mat2"), baddbmm = estimated("baddbmm", "batch1", "batch2");
  EXPECT_EQ(bmm.weight, bmm.backward / 2);
  EXPECT_EQ(baddbmm.weight, 0) << "its whole backward runs in I";
  EXPECT_GT(baddbmm.backward, 0);
}

}  // namespace
}  // namespace pw::test
