#include <gtest/gtest.h>

#include "simulator/costs/estimate.h"
#include "simulator/costs/operator_flops.h"
#include "simulator/costs/profile.h"
#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

TensorMeta shape(const std::vector<std::int64_t>& sizes, DType dtype = DType::Float32) { return GraphBuilder::shape(sizes, dtype); }

/// FLOPs of one call with arguments of these names and shapes.
double flopsOf(const std::string& op, const std::vector<std::pair<std::string, TensorMeta>>& tensors, const TensorMeta& out,
               std::vector<NamedArgument> others = {}) {
  GraphBuilder b;
  std::vector<NamedArgument> arguments;
  for (const auto& [name, meta] : tensors) arguments.push_back({name, b.input(name, meta)});
  arguments.insert(arguments.end(), others.begin(), others.end());
  const ModelGraph graph = b.done(b.call(op, arguments, "out", out));
  return forwardFlops(graph, graph.nodes[0], {{"b", 3}}).value();
}

TEST(ForwardFlops, OfMatrixProductsAreTwoPerMultiplyAdd) {
  EXPECT_EQ(flopsOf("linear", {{"input", shape({2, 5, 8})}, {"weight", shape({16, 8})}}, shape({2, 5, 16})), 2.0 * 2 * 5 * 8 * 16);
  EXPECT_EQ(flopsOf("mm", {{"self", shape({3, 4})}, {"mat2", shape({4, 5})}}, shape({3, 5})), 2.0 * 3 * 4 * 5);
  EXPECT_EQ(flopsOf("bmm", {{"self", shape({7, 3, 4})}, {"mat2", shape({7, 4, 5})}}, shape({7, 3, 5})), 2.0 * 7 * 3 * 4 * 5);
  EXPECT_EQ(flopsOf("matmul", {{"self", shape({2, 7, 3, 4})}, {"other", shape({2, 7, 4, 5})}}, shape({2, 7, 3, 5})),
            2.0 * 2 * 7 * 3 * 4 * 5);
  EXPECT_EQ(flopsOf("matmul", {{"self", shape({6})}, {"other", shape({6})}}, shape({})), 2.0 * 6);
  EXPECT_EQ(flopsOf("mv", {{"self", shape({3, 4})}, {"vec", shape({4})}}, shape({3})), 2.0 * 3 * 4);
  EXPECT_EQ(flopsOf("addmm", {{"self", shape({5})}, {"mat1", shape({3, 4})}, {"mat2", shape({4, 5})}}, shape({3, 5})), 2.0 * 3 * 4 * 5);
  EXPECT_EQ(flopsOf("baddbmm", {{"self", shape({5})}, {"batch1", shape({2, 3, 4})}, {"batch2", shape({2, 4, 5})}}, shape({2, 3, 5})),
            2.0 * 2 * 3 * 4 * 5);
}

TEST(ForwardFlops, ScaleWithTheBoundBatch) {
  EXPECT_EQ(flopsOf("linear", {{"input", GraphBuilder::rows()}, {"weight", shape({4, 4})}}, GraphBuilder::rows()), 2.0 * 3 * 4 * 4);
}

TEST(ForwardFlops, OfConvolutionsCountEachGroupsOwnChannels) {
  // Output 2×6×8×8, each element from 3 channels of 3×3; with 3 groups from one.
  EXPECT_EQ(flopsOf("conv2d", {{"input", shape({2, 3, 8, 8})}, {"weight", shape({6, 3, 3, 3})}}, shape({2, 6, 8, 8})),
            2.0 * (2 * 6 * 8 * 8) * (3 * 3 * 3));
  EXPECT_EQ(flopsOf("conv2d", {{"input", shape({2, 3, 8, 8})}, {"weight", shape({6, 1, 3, 3})}}, shape({2, 6, 8, 8})),
            2.0 * (2 * 6 * 8 * 8) * (1 * 3 * 3));
  EXPECT_EQ(flopsOf("conv1d", {{"input", shape({2, 3, 9})}, {"weight", shape({5, 3, 2})}}, shape({2, 5, 8})), 2.0 * (2 * 5 * 8) * (3 * 2));
}

TEST(ForwardFlops, OfTransposedConvolutionsCountTheInput) {
  // Each of the 2×3×4×4 inputs goes to 6 channels of 2×2.
  const std::vector<std::pair<std::string, TensorMeta>> tensors{{"input", shape({2, 3, 4, 4})}, {"weight", shape({3, 6, 2, 2})}};
  EXPECT_EQ(flopsOf("conv_transpose2d", tensors, shape({2, 6, 8, 8})), 2.0 * (2 * 3 * 4 * 4) * (6 * 2 * 2));
  EXPECT_EQ(flopsOf("convolution", tensors, shape({2, 6, 8, 8}), {{"transposed", true}}), 2.0 * (2 * 3 * 4 * 4) * (6 * 2 * 2));
}

TEST(ForwardFlops, OfAttentionAreTwoProducts) {
  // Batch 2, 4 heads, 5 queries of width 8 against 7 keys, values of width 6: scores 5×8×7, weighted values 5×7×6.
  const std::vector<std::pair<std::string, TensorMeta>> tensors{
      {"query", shape({2, 4, 5, 8})}, {"key", shape({2, 4, 7, 8})}, {"value", shape({2, 4, 7, 6})}};
  EXPECT_EQ(flopsOf("scaled_dot_product_attention", tensors, shape({2, 4, 5, 6})), 2.0 * 2 * 4 * (5 * 8 * 7 + 5 * 7 * 6));
}

TEST(ForwardFlops, CountWhatASubgraphComputesAndNothingElse) {
  EXPECT_EQ(flopsOf("add", {{"self", shape({100})}, {"other", shape({100})}}, shape({100})), 0);
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ModelGraph graph = b.done(b.wrapped(true, "linear", {{"input", x}, {"weight", w}}, {x, w}, "y"));
  EXPECT_EQ(forwardFlops(graph, graph.nodes[0], {{"b", 3}}), 2.0 * 3 * 4 * 4);
}

/// One TFLOP/s at half efficiency, 1 GB/s memory, 100 ns a launch, two ranks a node.
Cluster cluster() {
  Cluster c;
  c.name = "test";
  c.deviceName = "device";
  c.peakFlops = {{"fp32", 1e9}, {"bf16", 4e9}};
  c.memoryBytesPerSecond = 1e9;
  c.efficiency["default"] = {{1e3, 0.5}};
  c.launchOverhead = 100;
  c.topology.ranksPerNode = 2;
  c.topology.sameNode = {7, 1e9};
  return c;
}

TEST(Estimate, TakesTheSlowerOfMatrixWorkAndMemory) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId y = b.call("linear", {{"input", x}, {"weight", w}}, "y");
  const ValueId view = b.op("view", {y}, "view");
  const ValueId mask = b.op("sin", {x}, "mask");
  const ModelGraph graph = b.done(b.op("mul", {view, mask}, "z"));
  const Profile p = estimate(graph, 3, cluster());
  // linear: 2·3·4·4 = 96 FLOPs at 0.5 · 1e9/s = 192 ns; it reads 48 + 64 and writes 48 bytes at 1 byte/ns = 160 ns.
  // Its input needs no gradient, so its backward is one product, of the weight's, and all W's, which needs the output's gradient, which is
  // freed. The output is not kept: it is multiplied by what needs no gradient, and that is kept.
  EXPECT_EQ(p.nodes[0], (NodeCost{192 + 100, 192 + 100, 0, 0, 0, 96, 292, 48, 48, 0, -48, 0, 0, 0}));
  EXPECT_EQ(p.nodes[1], NodeCost{}) << "a view is free";
  EXPECT_EQ(p.nodes[2], (NodeCost{96 + 100, 0, 0, 0, 48, 0, 0, 0, 48, 0, -48, 0, 0, -48})) << "needs no gradient";
  EXPECT_EQ(p.nodes[3], (NodeCost{144 + 100, 144 + 100, 0, 0, 48, 0, 0, 0, 48 + 48, 48, 48 - 48, 0, 48}))
      << "beside its output, which the loss reads, there is the product's; one gradient comes, one goes";
  EXPECT_TRUE(p.estimated);
  EXPECT_EQ(p.microbatch, 3);
  EXPECT_EQ(p.topology, cluster().topology);
  EXPECT_EQ(p.optimizerNsPerByte, 3) << "reads weight and gradient, writes the weight: three bytes at 1 byte/ns";
  // Cross-entropy: the logarithms are written and read, 2 · 48 ns, by two kernels, and kept in place of the output. Their gradient is
  // written and read, they are read, and the output's gradient is written.
  EXPECT_EQ(p.loss, (NodeCost{96 + 200, 192 + 200, 0, 0, 0, 0, 0, 0, 48, 96, 48 - 48, 0, 96}));
}

/// What each operator leaves for its backward, by PyTorch's derivative formulas.
TEST(Estimate, SavesWhatOperatorsKeep) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ValueId h = b.call("linear", {{"input", x}, {"weight", w}}, "h");
  const auto savedBy = [&](const std::string& op, const std::vector<NamedArgument>& arguments, const TensorMeta& meta) {
    GraphBuilder copy = b;
    const ModelGraph graph = copy.done(copy.call(op, arguments, "y", meta));
    const Profile p = estimate(graph, 3, cluster(), DType::Unknown, Attention::AsTraced, Loss{LossKind::Sum});
    return std::pair(p.nodes[0].saved, p.nodes[1].saved);
  };
  using Pair = std::pair<Bytes, Bytes>;  // of h, by its maker; and of the operator's own
  const TensorMeta rows = GraphBuilder::rows();
  EXPECT_EQ(savedBy("neg", {{"self", h}}, rows), Pair(0, 0));
  EXPECT_EQ(savedBy("gelu", {{"self", h}}, rows), Pair(48, 0)) << "its input";
  EXPECT_EQ(savedBy("tanh", {{"self", h}}, rows), Pair(0, 48)) << "its result";
  EXPECT_EQ(savedBy("mul", {{"self", h}, {"other", 2.0}}, rows), Pair(0, 0)) << "a number has no gradient";
  EXPECT_EQ(savedBy("mul", {{"self", h}, {"other", h}}, rows), Pair(48, 0));
  EXPECT_EQ(savedBy("mul", {{"self", h}, {"other", w}}, rows), Pair(48, 0));
  EXPECT_EQ(savedBy("mul", {{"self", h}, {"other", x}}, rows), Pair(0, 0)) << "the input of the model is there anyway";
  EXPECT_EQ(savedBy("dropout", {{"input", h}, {"p", 0.5}, {"train", true}}, rows), Pair(0, 12)) << "a byte for each element";
  EXPECT_EQ(savedBy("max_pool2d", {{"self", h}}, rows), Pair(48, 96)) << "its input and the places";
  EXPECT_EQ(savedBy("cross_entropy_loss", {{"self", h}, {"target", x}}, GraphBuilder::shape({})), Pair(0, 48)) << "logarithms";
  EXPECT_EQ(savedBy("frobnicate", {{"self", h}}, rows), Pair(48, 48)) << "not known: both";
}

TEST(Estimate, CountsTheLossBesideTheGraph) {
  GraphBuilder b;
  const ValueId x = b.input("x"), w = b.parameter("w");
  const ModelGraph graph = b.done(b.call("linear", {{"input", x}, {"weight", w}}, "y"));
  const auto lossOf = [&](const Loss& loss, DType precision = DType::Unknown) {
    return estimate(graph, 3, cluster(), precision, Attention::AsTraced, loss);
  };
  const Profile cross = lossOf({LossKind::CrossEntropy}), squares = lossOf({LossKind::MeanSquaredError}), sum = lossOf({LossKind::Sum});
  EXPECT_EQ(sum.loss, NodeCost{});
  EXPECT_EQ(sum.nodes[0].saved, 0) << "products keep their inputs";
  EXPECT_EQ(cross.nodes[0].saved, 48) << "until the loss has read it";
  EXPECT_EQ(cross.loss.saved, 48 - 48) << "the logarithms come, and the output goes";
  EXPECT_EQ(squares.nodes[0].saved, 48);
  EXPECT_EQ(squares.loss.saved, 0) << "the output stays, of which the difference from the target is made again";
  EXPECT_EQ(squares.loss.backwardChange, 48 - 48) << "the output's gradient comes";
  // In 16 bits the output takes 24 bytes; it is cast to 48, which stay for squares.
  const Profile half = lossOf({LossKind::CrossEntropy}, DType::BFloat16),
                halfSquares = lossOf({LossKind::MeanSquaredError}, DType::BFloat16);
  EXPECT_EQ(half.nodes[0].saved, 24 + 24) << "and the copy of the model's input, which the product casts";
  EXPECT_EQ(half.loss.saved, 48 - 24);
  EXPECT_EQ(half.loss.forwardPeak, 48 + 48) << "cast, logarithms";
  EXPECT_EQ(half.loss.backwardPeak, 96) << "gradients of both, beside the logarithms";
  EXPECT_EQ(half.loss.backwardChange, 24 - 48);
  EXPECT_EQ(halfSquares.loss.saved, 48 - 24);
  for (const Profile* p : {&cross, &squares, &half, &halfSquares}) {
    Bytes left = p->loss.saved + p->loss.backwardChange;  // a microbatch leaves nothing behind but what it brought
    for (const NodeCost& node : p->nodes) left += node.saved + node.backwardChange;
    EXPECT_EQ(left, 0);
  }
}

TEST(Estimate, LeavesHalfOfTheBackwardToWWhereInputAndWeightNeedGradients) {
  const Profile p = estimate(chain(2), 3, cluster());
  EXPECT_EQ(p.nodes[0].weight, p.nodes[0].backward);
  EXPECT_EQ(p.nodes[1].weight, p.nodes[1].backward / 2);
  EXPECT_EQ(p.nodes[1].heldForWeight, 2 * 48) << "its input and its output's gradient";
}

/// LoRA (2106.09685): x passes a trained layer, then y = x Wᵀ + (x Aᵀ) Bᵀ with W frozen. FLOPs in units of the layers' 2 · 3 · 4 · 4, as
/// torch's FlopCounterMode counts them (tests/app/python/test_estimates.py).
TEST(Estimate, CountsABackwardOnlyOfFactorsThatNeedGradients) {
  GraphBuilder b;
  const ValueId first = b.call("linear", {{"input", b.input("x")}, {"weight", b.parameter("first")}}, "h");
  const ValueId frozen = b.call("linear", {{"input", first}, {"weight", b.parameter("w", "", false)}}, "frozen");
  const ValueId down = b.call("linear", {{"input", first}, {"weight", b.parameter("a")}}, "down");
  const ValueId up = b.call("linear", {{"input", down}, {"weight", b.parameter("b")}}, "up");
  const ModelGraph graph = b.done(b.op("add", {frozen, up}, "y"));
  const Profile p = estimate(graph, 3, cluster());
  const Ns product = p.nodes[0].forward;
  using Products = std::pair<Ns, Ns>;
  const auto of = [&](Ns products, Ns weights) { return Products(products * product.value, weights * product.value); };
  const auto productsOf = [&](std::size_t node) { return Products(p.nodes[node].backward, p.nodes[node].weight); };
  EXPECT_EQ(productsOf(0), of(1, 1)) << "its input needs no gradient";
  EXPECT_EQ(productsOf(1), of(1, 0)) << "frozen";
  EXPECT_EQ(productsOf(2), of(2, 1));
  EXPECT_EQ(productsOf(3), of(2, 1));
}

/// A trained bias beside a frozen weight is summed by one pass over memory, in W.
TEST(Estimate, CountsASumForABiasAlone) {
  GraphBuilder b;
  const ValueId h = b.op("mul", {b.input("x"), b.parameter("scale")}, "h");
  const ValueId bias = b.parameter("bias", "", true, shape({4}));
  const ModelGraph graph = b.done(b.call("linear", {{"input", h}, {"weight", b.parameter("w", "", false)}, {"bias", bias}}, "y"));
  const Profile p = estimate(graph, 3, cluster());
  // It reads 48 + 64 + 16 bytes and writes 48, at 1 byte/ns, after a launch of 100 ns.
  EXPECT_EQ(p.nodes[1].weight, 176 + 100);
  EXPECT_EQ(p.nodes[1].backward, p.nodes[1].forward + 176 + 100);
}

TEST(Estimate, UsesThePeakOfTheOutputsType) {
  GraphBuilder b;
  const TensorMeta half = shape({64, 64}, DType::BFloat16);
  const ModelGraph graph = b.done(b.call("mm", {{"self", b.input("a", half)}, {"mat2", b.input("c", half)}}, "y", half));
  // 2·64³ = 524288 FLOPs at 0.5 · 4e9/s = 262144 ns; memory 3·8192 bytes is less.
  EXPECT_EQ(estimate(graph, 64, cluster()).nodes[0].forward, 262144 + 100);
}

TEST(Estimate, UsesThePeakOfDoublesWhereTheClusterListsIt) {
  GraphBuilder b;
  const TensorMeta doubles = shape({64, 64}, DType::Float64);
  const ModelGraph graph = b.done(b.call("mm", {{"self", b.input("a", doubles)}, {"mat2", b.input("c", doubles)}}, "y", doubles));
  Cluster withDoubles = cluster();
  withDoubles.peakFlops["fp64"] = 0.5e9;
  // 2·64³ = 524288 FLOPs at 0.5 · 0.5e9/s = 2097152 ns; memory 3·32768 bytes is less. Without that peak at the lowest listed, of fp32.
  const Profile p = estimate(graph, 64, withDoubles);
  EXPECT_EQ(p.nodes[0].forward, 2097152 + 100);
  EXPECT_EQ(p.peakFlops, 0.5e9);
  EXPECT_EQ(estimate(graph, 64, cluster()).nodes[0].forward, 1048576 + 100);
}

TEST(Estimate, CountsDataDependentSizesAsNothing) {
  GraphBuilder b;
  const ValueId x = b.input("x");
  const ModelGraph graph = b.done(b.op("nonzero", {x}, "found", GraphBuilder::meta({GraphBuilder::dataDependent()}, DType::Int64)));
  EXPECT_EQ(estimate(graph, 2, cluster()).nodes[0], NodeCost{});
}

}  // namespace
}  // namespace pw::test
