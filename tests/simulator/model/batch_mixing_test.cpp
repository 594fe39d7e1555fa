#include "simulator/model/batch_mixing.h"

#include <gtest/gtest.h>

#include "simulator/model/graph_facts.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;
using Named = std::vector<NamedArgument>;

SymbolicInt fixed(std::int64_t size) { return {size, ""}; }
SymbolicInt batches(std::int64_t factor) {
  return {2 * factor, "Mul(Integer(" + std::to_string(factor) + "), Symbol('b', positive=True, integer=True))"};
}
TensorMeta sized(std::vector<SymbolicInt> sizes) { return GraphBuilder::meta(std::move(sizes)); }
const SymbolicInt kB = GraphBuilder::batch();
const Argument kFirst = std::int64_t{0}, kLast = std::int64_t{-1};

/// `operator: how` of each operator that mixes the samples of a graph.
std::vector<std::string> mixed(const ModelGraph& graph) {
  std::vector<std::string> found;
  for (const Mixing& mixing : batchMixing(graph))
    found.push_back(operatorName(*mixing.node) + (mixing.ownLoss ? " (loss)" : "") + ": " + mixing.how);
  return found;
}

/// What one call on an input x [batch, 4] mixes; `name` of its tensor argument is self.
std::vector<std::string> mixedBy(const std::string& op, Named more, const TensorMeta& result, const TensorMeta& x = GraphBuilder::rows()) {
  GraphBuilder g;
  Named arguments{{"self", g.input("x", x)}};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return mixed(g.done(g.call(op, arguments, "y", result)));
}

using Strings = std::vector<std::string>;
using Dims = std::vector<std::int64_t>;

TEST(BatchMixing, IsNoneWhereOperatorsWorkOnEachSample) {
  EXPECT_EQ(mixedBy("relu", {}, GraphBuilder::rows()), Strings());
  EXPECT_EQ(mixedBy("mean", {{"dim", Dims{-1}}}, sized({kB})), Strings());
  EXPECT_EQ(mixedBy("mean", {{"dim", Dims{-1}}, {"keepdim", true}}, sized({kB, fixed(1)})), Strings());
  EXPECT_EQ(mixedBy("softmax", {{"dim", kLast}}, GraphBuilder::rows()), Strings());
  EXPECT_EQ(mixedBy("topk", {{"k", std::int64_t{2}}}, sized({kB, fixed(2)})), Strings());
  EXPECT_EQ(mixedBy("layer_norm", {{"normalized_shape", Dims{4}}}, GraphBuilder::rows()), Strings());
  EXPECT_EQ(mixedBy("flip", {{"dims", Dims{1}}}, GraphBuilder::rows()), Strings());
  EXPECT_EQ(mixedBy("ones_like", {}, GraphBuilder::rows()), Strings());
  EXPECT_EQ(mixedBy("broadcast_tensors", {}, GraphBuilder::rows()), Strings()) << "as F.mse_loss begins";
}

TEST(BatchMixing, IsAReductionOverTheSamples) {
  const Strings expected{"sum: reduces over the samples"};
  EXPECT_EQ(mixedBy("sum", {{"dim", Dims{0}}}, sized({fixed(4)})), expected);
  EXPECT_EQ(mixedBy("sum", {{"dim", Dims{-2}}, {"keepdim", true}}, sized({fixed(1), fixed(4)})), expected);
  EXPECT_EQ(mixedBy("sum", {{"dim", Dims{0, 1}}, {"keepdim", true}}, sized({fixed(1), fixed(1)})).size(), 1U);
  for (const char* op : {"mean", "amax", "var", "std", "norm", "logsumexp", "argmax", "median", "prod", "all"}) {
    EXPECT_EQ(mixedBy(op, {{"dim", kFirst}}, sized({fixed(4)})), Strings{std::string(op) + ": reduces over the samples"});
    EXPECT_EQ(mixedBy(op, {{"dim", std::int64_t{1}}}, sized({kB})), Strings()) << op;
  }
}

TEST(BatchMixing, IsAnOperatorThatRunsAlongTheSamples) {
  for (const char* op : {"softmax", "log_softmax", "cumsum", "cumprod", "sort", "argsort", "logcumsumexp"}) {
    EXPECT_EQ(mixedBy(op, {{"dim", kFirst}}, GraphBuilder::rows()), Strings{std::string(op) + ": runs along the samples"});
  }
  EXPECT_EQ(mixedBy("topk", {{"k", std::int64_t{1}}, {"dim", kFirst}}, sized({fixed(1), fixed(4)})).size(), 1U);
  EXPECT_EQ(mixedBy("flip", {{"dims", Dims{0, 1}}}, GraphBuilder::rows()), Strings{"flip: picks samples by their place"});
  EXPECT_EQ(mixedBy("roll", {{"shifts", Dims{1}}, {"dims", Dims{0}}}, GraphBuilder::rows()), Strings{"roll: picks samples by their place"});
  EXPECT_EQ(mixedBy("roll", {{"shifts", Dims{1}}}, GraphBuilder::rows()), Strings{"roll: picks samples by their place"})
      << "of all elements in a row";
}

TEST(BatchMixing, IsAChoiceOfSamplesByTheirPlace) {
  const Argument one = std::int64_t{1};
  EXPECT_EQ(mixedBy("select", {{"dim", kFirst}, {"index", one}}, sized({fixed(4)})), Strings{"select: picks samples by their place"});
  EXPECT_EQ(mixedBy("select", {{"dim", one}, {"index", one}}, sized({kB})), Strings());
  const SymbolicInt less{1, "Add(Integer(-1), Symbol('b', positive=True, integer=True))"};
  EXPECT_EQ(mixedBy("slice", {{"dim", kFirst}, {"start", one}}, sized({less, fixed(4)})), Strings{"slice: picks samples by their place"});
  EXPECT_EQ(mixedBy("slice", {{"dim", kFirst}}, GraphBuilder::rows()), Strings()) << "x[:]";
  EXPECT_EQ(mixedBy("slice", {{"dim", one}, {"start", one}}, sized({kB, fixed(3)})), Strings());
}

TEST(BatchMixing, IsAProductThatContractsTheSamplesOrPairsThem) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  const ValueId turned = g.call("t", {{"self", x}}, "turned", sized({fixed(4), kB}));
  g.call("matmul", {{"self", turned}, {"other", x}}, "covariance", GraphBuilder::shape({4, 4}));
  g.call("matmul", {{"self", x}, {"other", turned}}, "similarity", sized({kB, kB}));
  const ValueId weight = g.parameter("weight");
  EXPECT_EQ(mixed(g.done(g.call("mm", {{"self", x}, {"mat2", weight}}, "plain"))),
            (Strings{"matmul: reduces over the samples", "matmul: combines each sample with others"}));
}

TEST(BatchMixing, IsADifferenceOfEachSampleAndEachOther) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  const ValueId left = g.call("unsqueeze", {{"self", x}, {"dim", kFirst}}, "left", sized({fixed(1), kB, fixed(4)}));
  const ValueId right = g.call("unsqueeze", {{"self", x}, {"dim", std::int64_t{1}}}, "right", sized({kB, fixed(1), fixed(4)}));
  EXPECT_EQ(mixed(g.done(g.call("sub", {{"self", left}, {"other", right}}, "all", sized({kB, kB, fixed(4)})))),
            Strings{"sub: combines each sample with others"});
}

TEST(BatchMixing, IsNoneInAttentionOfEachSample) {
  const auto attend = [](const TensorMeta& meta) {
    GraphBuilder g;
    const ValueId x = g.input("x");
    const ValueId q = g.call("view", {{"self", x}}, "q", meta);
    return mixed(g.done(g.call("scaled_dot_product_attention", {{"query", q}, {"key", q}, {"value", q}}, "y", meta)));
  };
  EXPECT_EQ(attend(sized({kB, fixed(2), fixed(1), fixed(2)})), Strings());
  // A module that expects the sequence first takes samples for positions.
  EXPECT_EQ(attend(sized({fixed(1), fixed(1), kB, fixed(4)})), Strings{"scaled_dot_product_attention: reduces over the samples"});
}

TEST(BatchMixing, IsAReductionAfterSamplesWereMergedWithOtherDimensions) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  const ValueId flat = g.call("view", {{"self", x}}, "flat", sized({batches(4)}));
  const ValueId back = g.call("view", {{"self", flat}}, "back");
  g.call("mean", {{"self", back}, {"dim", Dims{1}}}, "fine", sized({kB}));
  g.call("softmax", {{"self", flat}, {"dim", kFirst}}, "bad", sized({batches(4)}));
  EXPECT_EQ(mixed(g.done(back)), Strings{"softmax: runs along the samples"});
}

TEST(BatchMixing, IsAViewThatRegroupsTheSamples) {
  // [batch, 4] read as [4, batch] puts rows of different samples into one column; a transpose does not.
  EXPECT_EQ(mixedBy("view", {}, sized({fixed(4), kB})), Strings{"view: regroups the samples"});
  EXPECT_EQ(mixedBy("transpose", {{"dim0", kFirst}, {"dim1", std::int64_t{1}}}, sized({fixed(4), kB})), Strings());
  // As nn.MultiheadAttention merges sequence-first [time, batch, width] with its heads and takes them apart again.
  GraphBuilder g;
  const ValueId x = g.input("x", sized({kB, fixed(3), fixed(4)}));
  const ValueId first =
      g.call("transpose", {{"self", x}, {"dim0", kFirst}, {"dim1", std::int64_t{1}}}, "first", sized({fixed(3), kB, fixed(4)}));
  const ValueId merged = g.call("view", {{"self", first}}, "merged", sized({fixed(3), batches(2), fixed(2)}));
  const ValueId heads = g.call("transpose", {{"self", merged}, {"dim0", kFirst}, {"dim1", std::int64_t{1}}}, "heads",
                               sized({batches(2), fixed(3), fixed(2)}));
  EXPECT_EQ(mixed(g.done(g.call("softmax", {{"self", heads}, {"dim", kLast}}, "y", sized({batches(2), fixed(3), fixed(2)})))), Strings());
}

TEST(BatchMixing, IsNoneWhereTwoBatchesAreJoinedAndPartedAgain) {
  GraphBuilder g;
  const ValueId a = g.input("a"), b = g.input("b");
  const ValueId both = g.call("cat", {{"tensors", std::vector<ValueId>{a, b}}}, "both", sized({batches(2), fixed(4)}));
  const ValueId left = g.call("slice", {{"self", both}, {"dim", kFirst}, {"start", kFirst}}, "left");
  const ValueId size = g.size(a, "n");
  const ValueId right = g.call("slice", {{"self", both}, {"dim", kFirst}, {"start", size}}, "right");
  EXPECT_EQ(mixed(g.done(g.call("mul", {{"self", left}, {"other", right}}, "y"))), Strings());
}

TEST(BatchMixing, IsNoneWhereEachSampleIsIndexedByItsNumber) {
  GraphBuilder g;
  const ValueId x = g.input("x"), last = g.input("last", GraphBuilder::meta({kB}, DType::Int64));
  const ValueId size = g.size(x, "n");
  const ValueId numbers = g.call("arange", {{"end", size}}, "numbers", GraphBuilder::meta({kB}, DType::Int64));
  const auto indexed = [&](ValueId first) {
    const std::vector<std::optional<ValueId>> indices{first, last};
    return g.call("index", {{"self", x}, {"indices", indices}}, "y", sized({kB}));
  };
  indexed(numbers);
  const ValueId all = g.call("slice", {{"self", numbers}, {"dim", kFirst}}, "all", GraphBuilder::meta({kB}, DType::Int64));
  indexed(g.call("add", {{"self", all}, {"other", std::int64_t{0}}}, "same", GraphBuilder::meta({kB}, DType::Int64)));
  EXPECT_EQ(mixed(g.graph()), Strings());
  const ValueId next = g.call("sub", {{"self", numbers}, {"other", std::int64_t{1}}}, "next", GraphBuilder::meta({kB}, DType::Int64));
  indexed(next);
  EXPECT_EQ(mixed(g.done(indexed(last))), (Strings{"index: picks samples by their place", "index: picks samples by their place"}))
      << "the neighbour, and numbers from outside";
}

TEST(BatchMixing, TellsTheModelsOwnLossApart) {
  GraphBuilder g;
  const ValueId x = g.input("x"), y = g.input("y", GraphBuilder::meta({kB}, DType::Int64));
  const ValueId loss = g.call("cross_entropy_loss", {{"self", x}, {"target", y}}, "loss", GraphBuilder::shape({}));
  const ValueId total = g.call("sum", {{"self", x}}, "total", GraphBuilder::shape({}));
  const ValueId scaled = g.call("mul", {{"self", x}, {"other", total}}, "scaled");  // a number that goes back into the samples
  g.output(scaled);
  const ModelGraph graph = g.done(g.call("div", {{"self", loss}, {"other", 2.0}}, "half", GraphBuilder::shape({})));
  EXPECT_EQ(mixed(graph), (Strings{"cross_entropy_loss (loss): reduces over the samples", "sum: reduces over the samples"}));
  EXPECT_FALSE(batchMixing(graph).front().sums);
  GraphBuilder h;
  const ModelGraph sum = h.done(h.call("mse_loss", {{"self", h.input("x")}, {"target", h.input("t")}, {"reduction", std::int64_t{2}}},
                                       "loss", GraphBuilder::shape({})));
  EXPECT_TRUE(batchMixing(sum).front().sums);
}

TEST(BatchMixing, IsAComputationWithTheNumberOfSamples) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  const ValueId size = g.size(x, "n");
  EXPECT_EQ(mixed(g.done(g.call("div", {{"self", x}, {"other", size}}, "y"))), Strings{"div: computes with the number of samples"});
}

TEST(BatchMixing, IsFoundInSubgraphsAndWithAFixedBatch) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  EXPECT_EQ(mixed(g.done(g.wrapped(false, "cumsum", {{"self", x}, {"dim", kFirst}}, {x}, "y"))), Strings{"cumsum: runs along the samples"});
  const TensorMeta rows = GraphBuilder::shape({2, 2, 4});  // the batch is the first of two equal sizes
  EXPECT_EQ(mixedBy("softmax", {{"dim", std::int64_t{1}}}, rows, rows), Strings());
  EXPECT_EQ(mixedBy("softmax", {{"dim", kFirst}}, rows, rows), Strings{"softmax: runs along the samples"});
  EXPECT_EQ(mixedBy("mean", {{"dim", Dims{0}}}, GraphBuilder::shape({2, 4}), rows), Strings{"mean: reduces over the samples"});
}

TEST(BatchMixing, IsUnknownForOperatorsWithoutARule) {
  const auto unknown = [](const std::string& op, const TensorMeta& result, bool ofSamples) {
    GraphBuilder g;
    const ValueId x = g.input("x"), table = g.parameter("table");
    const ValueId made = g.call(op, {{"self", ofSamples ? x : table}, {"mask", x}, {"source", x}}, "made", result);
    const ModelGraph graph = g.done(made);  // the findings point into it
    std::vector<std::string> found;
    for (const Mixing& mixing : batchMixing(graph))
      found.push_back((mixing.unknown ? "unknown: " : "mixes: ") + operatorName(*mixing.node));
    return found;
  };
  EXPECT_EQ(unknown("masked_scatter", GraphBuilder::rows(), true), Strings{"unknown: masked_scatter"})
      << "it takes from the source in the order of all samples";
  EXPECT_EQ(unknown("torch.ops.mine.route.default", GraphBuilder::rows(), true), Strings{"unknown: torch.ops.mine.route.default"});
  EXPECT_EQ(unknown("torch.ops.mine.route.default", GraphBuilder::shape({4, 4}), true), Strings{"mixes: torch.ops.mine.route.default"});
  GraphBuilder g;
  const ValueId made = g.call("torch.ops.mine.table.default", {{"self", g.parameter("table")}}, "made", GraphBuilder::shape({4}));
  EXPECT_TRUE(batchMixing(g.done(g.call("add", {{"self", g.input("x")}, {"other", made}}, "y"))).empty()) << "it sees no samples";
}

TEST(BatchMixing, IsAGradientThatCountsTheIndicesOfAllSamples) {
  const auto embedding = [](bool scales) {
    GraphBuilder g;
    const ValueId x = g.input("x", GraphBuilder::meta({kB}, DType::Int64)), weight = g.parameter("weight");
    return mixed(g.done(
        g.call("embedding", {{"weight", weight}, {"indices", x}, {"padding_idx", std::int64_t{-1}}, {"scale_grad_by_freq", scales}}, "y")));
  };
  EXPECT_EQ(embedding(false), Strings());
  EXPECT_EQ(embedding(true), Strings{"embedding: divides gradients by how often all samples have an index"});
}

TEST(BatchMixing, FollowsTheLettersOfAnEquation) {
  const auto einsum = [](const std::string& equation, const TensorMeta& result) {
    GraphBuilder g;
    const ValueId x = g.input("x"), w = g.parameter("w");
    return mixed(g.done(g.call("einsum", {{"equation", equation}, {"tensors", std::vector<ValueId>{x, w}}}, "y", result)));
  };
  EXPECT_EQ(einsum("bi,ij->bj", GraphBuilder::rows()), Strings());
  EXPECT_EQ(einsum("bi,ij->jb", sized({fixed(4), kB})), Strings());
  EXPECT_EQ(einsum("bi,ij->j", sized({fixed(4)})), Strings{"einsum: reduces over the samples"});
  EXPECT_EQ(einsum("...i,ij->...j", GraphBuilder::rows()), Strings{"einsum: has no rule here"});
}

TEST(BatchMixing, IsNoneOfWhatDoesNotDependOnTheSamples) {
  GraphBuilder g;
  const ValueId x = g.input("x"), table = g.parameter("table");
  const ValueId mask = g.call("sum", {{"self", table}}, "total", GraphBuilder::shape({}));
  EXPECT_EQ(mixed(g.done(g.call("mul", {{"self", x}, {"other", mask}}, "y"))), Strings());
}

TEST(BatchMixing, ReachesMemoryThatIsFilledInPlace) {
  GraphBuilder g;
  const ValueId x = g.input("x");
  const ValueId room = g.call("zeros", {}, "room");
  const ValueId part = g.call("slice", {{"self", room}, {"dim", kFirst}}, "part");
  g.call("copy_", {{"self", part}, {"src", x}}, "filled");
  EXPECT_EQ(mixed(g.done(g.call("cumsum", {{"self", room}, {"dim", kFirst}}, "y"))), Strings{"cumsum: runs along the samples"});
}

}  // namespace
}  // namespace pw
