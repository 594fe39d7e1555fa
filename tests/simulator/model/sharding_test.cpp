// Shardings of calls, by hand; tests/backends/torch/sharding_test.cpp computes them.
#include "simulator/model/sharding.h"

#include <gtest/gtest.h>

#include "tests/support/graph_builder.h"

namespace pw::test {
namespace {

using Sizes = std::vector<std::int64_t>;

/// `x 0, w 1 -> 1`: the tensors that are cut with their dimensions, then the result's dimension or how it is joined; `once` after addends.
std::vector<std::string> shardings(const std::string& op, const std::vector<std::pair<std::string, Sizes>>& tensors, const Sizes& result,
                                   std::vector<NamedArgument> others = {}) {
  GraphBuilder b;
  std::vector<NamedArgument> arguments;
  for (const auto& [name, sizes] : tensors) arguments.push_back({name, b.input(name, GraphBuilder::shape(sizes))});
  arguments.insert(arguments.end(), others.begin(), others.end());
  const ModelGraph graph = b.done(b.call(op, arguments, "y", GraphBuilder::shape(result)));
  std::vector<std::string> found;
  const auto call = callOf(graph, graph.nodes[0], {});
  for (const Sharding& sharding : shardingsOf(*call, 2)) {
    std::string text;
    for (std::size_t t = 0; t < sharding.tensors.size(); ++t) {
      if (sharding.tensors[t]) text += call->tensors[t].argument + " " + std::to_string(*sharding.tensors[t]) + ", ";
    }
    for (const std::size_t t : sharding.addedOnce) text += call->tensors[t].argument + " once, ";
    text.replace(text.size() - 2, 2, " -> ");
    text += sharding.results[0] ? std::to_string(*sharding.results[0]) : std::to_string(static_cast<int>(sharding.combines)) + " combines";
    found.push_back(text);
  }
  return found;
}

using Strings = std::vector<std::string>;
const std::string kSums = std::to_string(static_cast<int>(Combination::Sum)) + " combines";

TEST(Sharding, OfALinearLayerIsByRowsColumnsOrWhatIsSummedOver) {
  EXPECT_EQ(shardings("linear", {{"input", {4, 6, 8}}, {"weight", {10, 8}}, {"bias", {10}}}, {4, 6, 10}),
            (Strings{"input 0 -> 0", "input 1 -> 1", "weight 0, bias 0 -> 2", "input 2, weight 1, bias once -> " + kSums}));
  EXPECT_EQ(shardings("linear", {{"input", {3, 8}}, {"weight", {5, 8}}}, {3, 5}), Strings{"input 1, weight 1 -> " + kSums})
      << "odd sizes are not cut in two";
}

TEST(Sharding, OfABatchedProductPassesItsBatch) {
  EXPECT_EQ(shardings("bmm", {{"self", {2, 3, 5}}, {"mat2", {2, 5, 7}}}, {2, 3, 7}), Strings{"self 0, mat2 0 -> 0"});
  EXPECT_EQ(shardings("matmul", {{"self", {2, 1, 3, 4}}, {"other", {6, 4, 5}}}, {2, 6, 3, 5}),
            (Strings{"self 0 -> 0", "other 0 -> 1", "self 3, other 1 -> " + kSums}));
  EXPECT_EQ(shardings("addmm", {{"self", {6}}, {"mat1", {3, 4}}, {"mat2", {4, 6}}}, {3, 6}),
            (Strings{"self 0, mat2 1 -> 1", "mat1 1, mat2 0, self once -> " + kSums}));
}

TEST(Sharding, OfElementwiseOperatorsFollowsBroadcasting) {
  EXPECT_EQ(shardings("add", {{"self", {4, 6}}, {"other", {6}}}, {4, 6}), (Strings{"self 0 -> 0", "self 1, other 0 -> 1"}));
  EXPECT_EQ(shardings("mul", {{"self", {4, 1}}, {"other", {1, 6}}}, {4, 6}), (Strings{"self 0 -> 0", "other 1 -> 1"}));
}

TEST(Sharding, OfAViewKeepsBlocksTogether) {
  EXPECT_EQ(shardings("view", {{"self", {4, 8}}}, {4, 2, 4}), (Strings{"self 0 -> 0", "self 1 -> 1"})) << "heads";
  EXPECT_EQ(shardings("view", {{"self", {4, 2, 4}}}, {4, 8}), (Strings{"self 0 -> 0", "self 1 -> 1"}))
      << "blocks of the last dimension would be scattered";
  EXPECT_EQ(shardings("transpose", {{"self", {2, 4, 6}}}, {2, 6, 4}, {{"dim0", std::int64_t{1}}, {"dim1", std::int64_t{2}}}),
            (Strings{"self 0 -> 0", "self 1 -> 2", "self 2 -> 1"}));
}

TEST(Sharding, OfAReductionCombinesWhatItReducesIfItCan) {
  const std::vector<NamedArgument> last{{"dim", Sizes{-1}}};
  EXPECT_EQ(shardings("sum", {{"self", {4, 6}}}, {4}, last), (Strings{"self 0 -> 0", "self 1 -> " + kSums}));
  EXPECT_EQ(shardings("var", {{"self", {4, 6}}}, {4}, last), Strings{"self 0 -> 0"});
  EXPECT_EQ(shardings("softmax", {{"self", {4, 6}}}, {4, 6}, {{"dim", std::int64_t{-1}}}), Strings{"self 0 -> 0"});
  EXPECT_EQ(shardings("layer_norm", {{"input", {4, 6}}, {"weight", {6}}}, {4, 6}, {{"normalized_shape", Sizes{6}}}),
            Strings{"input 0 -> 0"});
}

TEST(Sharding, OfAttentionPassesHeadsAndQueriesUnlessCausal) {
  const std::vector<std::pair<std::string, Sizes>> tensors{{"query", {2, 4, 6, 8}}, {"key", {2, 4, 10, 8}}, {"value", {2, 4, 10, 8}}};
  const Strings heads{"query 0, key 0, value 0 -> 0", "query 1, key 1, value 1 -> 1"};
  Strings all = heads;
  all.insert(all.end(), {"query 2 -> 2", "value 3 -> 3"});
  EXPECT_EQ(shardings("scaled_dot_product_attention", tensors, {2, 4, 6, 8}), all);
  all = heads;
  all.emplace_back("value 3 -> 3");
  EXPECT_EQ(shardings("scaled_dot_product_attention", tensors, {2, 4, 6, 8}, {{"is_causal", true}}), all);
}

TEST(Sharding, OfAnIndexPassesDimensionsWithoutIndices) {
  GraphBuilder b;
  const ValueId x = b.input("x", GraphBuilder::shape({4, 6, 8})), rows = b.input("rows", GraphBuilder::shape({2}, DType::Int64));
  const std::vector<std::optional<ValueId>> indices{std::nullopt, rows};
  const ModelGraph graph = b.done(b.call("index", {{"self", x}, {"indices", indices}}, "y", GraphBuilder::shape({4, 2, 8})));
  const Sharding first{{0, std::nullopt}, {0}, Combination::None, {}}, last{{2, std::nullopt}, {2}, Combination::None, {}};
  EXPECT_EQ(shardingsOf(*callOf(graph, graph.nodes[0], {}), 2), (std::vector{first, last}));
}

TEST(Sharding, OfAnOperatorOnEachSampleIsByDimensionZero) {
  EXPECT_EQ(shardings("pixel_shuffle", {{"self", {2, 8, 4, 4}}}, {2, 2, 8, 8}), Strings{"self 0 -> 0"});
  EXPECT_EQ(shardings("unfold", {{"self", {4, 6}}}, {2, 6, 4}), Strings()) << "windows along dimension 0";
}

TEST(Sharding, IsNoneWithoutARule) { EXPECT_EQ(shardings("masked_scatter", {{"self", {4, 4}}, {"mask", {4, 4}}}, {4, 4}), Strings()); }

}  // namespace
}  // namespace pw::test
