// Shardings computed: what the shards of a call give, put together or added up, is what the whole call gives.
#include "simulator/model/sharding.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "backends/torch/program/program.h"
#include "backends/torch/program/types.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;
using Sizes = std::vector<std::int64_t>;
using Named = std::vector<NamedArgument>;

constexpr std::int64_t kShards = 2;

struct Case {
  std::string call;                                         ///< `linear.default`
  std::vector<std::pair<std::string, at::Tensor>> tensors;  ///< several of one name are a list
  Named others = {};
  /// Names of others that are the sizes of the result.
  std::string sizes = {};
  std::size_t results = 1;
  std::size_t ways = 1;  ///< how many shardings there are
};

TensorMeta metaOf(const at::Tensor& tensor) { return GraphBuilder::shape(tensor.sizes().vec(), dtypeOf(tensor.scalar_type())); }

/// The graph of one call; tensors of one name become a list.
ModelGraph graphOf(const Case& one, const std::vector<at::Tensor>& tensors, const std::vector<TensorMeta>& results) {
  GraphBuilder b;
  Named arguments;
  std::vector<ValueId> ids;
  for (std::size_t t = 0; t < tensors.size(); ++t) ids.push_back(b.input(one.tensors[t].first + std::to_string(t), metaOf(tensors[t])));
  for (std::size_t t = 0; t < tensors.size(); ++t) {
    const std::string& name = one.tensors[t].first;
    if (name != "tensors")
      arguments.push_back({name, ids[t]});
    else if (t == 0)
      arguments.push_back({name, ids});
  }
  for (const NamedArgument& other : one.others) {
    arguments.push_back(other);
    if (other.name != one.sizes) continue;
    Sizes sizes;
    for (const SymbolicInt& size : results.front().sizes) sizes.push_back(size.hint);
    arguments.back().value = sizes;
  }
  b.call("torch.ops.aten." + one.call, arguments, "y0", results.front());
  ModelGraph& graph = b.graph();
  for (std::size_t r = 1; r < results.size(); ++r) {
    graph.values.push_back(graph.values.back());
    graph.values.back().name = "y" + std::to_string(r);
    graph.values.back().tensor = results[r];
    graph.nodes.front().outputs.emplace_back(graph.values.size() - 1);
  }
  for (const ValueId output : graph.nodes.front().outputs) b.output(output);
  return graph;
}

std::vector<at::Tensor> compute(const Case& one, const std::vector<at::Tensor>& tensors, const std::vector<TensorMeta>& results) {
  const ModelGraph graph = graphOf(one, tensors, results);
  ProgramOptions options;
  options.keep = graph.outputs;
  const NodeProgram program(graph, {NodeId(0)}, options);
  Frame frame(graph.values.size());
  for (std::size_t t = 0; t < tensors.size(); ++t) frame[graph.inputs[t].index()] = tensors[t];
  const std::vector<std::int64_t> symbolic = symbolicValues(graph, {});
  RunOptions run;
  run.symbolic = &symbolic;
  program.run(frame, run);
  std::vector<at::Tensor> made;
  for (const ValueId output : graph.outputs) made.push_back(frame[output.index()]);
  return made;
}

at::Tensor joined(Combination how, const std::vector<at::Tensor>& parts) {
  const at::Tensor all = at::stack(parts);
  switch (how) {
    case Combination::None: break;
    case Combination::Sum: return all.sum(0, false, parts.front().scalar_type());
    case Combination::Mean: return all.mean(0);
    case Combination::Product: return all.prod(0);
    case Combination::Maximum: return all.amax(0);
    case Combination::Minimum: return all.amin(0);
  }
  return all;
}

/// The results from the shards of a call.
std::vector<at::Tensor> inShards(const Case& one, const Sharding& sharding, const std::vector<TensorMeta>& results) {
  std::vector<std::vector<at::Tensor>> parts(one.results);
  for (std::int64_t shard = 0; shard < kShards; ++shard) {
    std::vector<at::Tensor> tensors;
    for (std::size_t t = 0; t < one.tensors.size(); ++t) {
      at::Tensor tensor = one.tensors[t].second;
      if (sharding.tensors[t])
        tensor = tensor.chunk(kShards, static_cast<std::int64_t>(*sharding.tensors[t]))[static_cast<std::size_t>(shard)];
      const bool elsewhere = shard > 0 && std::ranges::find(sharding.addedOnce, t) != sharding.addedOnce.end();
      tensors.push_back(elsewhere ? at::zeros_like(tensor) : tensor.contiguous());
    }
    std::vector<TensorMeta> local = results;
    for (std::size_t r = 0; r < one.results; ++r) {
      if (sharding.results[r]) local[r].sizes[*sharding.results[r]].hint /= kShards;
    }
    const auto made = compute(one, tensors, local);
    for (std::size_t r = 0; r < one.results; ++r) parts[r].push_back(made[r]);
  }
  std::vector<at::Tensor> whole;
  for (std::size_t r = 0; r < one.results; ++r) {
    whole.push_back(sharding.results[r] ? at::cat(parts[r], static_cast<std::int64_t>(*sharding.results[r]))
                                        : joined(sharding.combines, parts[r]));
  }
  return whole;
}

at::Tensor randn(const Sizes& sizes) { return at::randn(sizes); }
at::Tensor indices(const Sizes& sizes, std::int64_t below) { return at::randint(below, sizes, at::kLong); }
Argument number(std::int64_t n) { return n; }
Argument list(const Sizes& numbers) { return numbers; }

std::vector<Case> products() {
  const at::Tensor q = randn({2, 4, 6, 8}), k = randn({2, 4, 10, 8}), v = randn({2, 4, 10, 8});
  return {
      {.call = "linear.default", .tensors = {{"input", randn({4, 6, 8})}, {"weight", randn({10, 8})}, {"bias", randn({10})}}, .ways = 4},
      {.call = "mm.default", .tensors = {{"self", randn({4, 6})}, {"mat2", randn({6, 8})}}, .ways = 3},
      {.call = "bmm.default", .tensors = {{"self", randn({2, 4, 6})}, {"mat2", randn({2, 6, 8})}}, .ways = 4},
      {.call = "mv.default", .tensors = {{"self", randn({4, 6})}, {"vec", randn({6})}}, .ways = 2},
      {.call = "matmul.default", .tensors = {{"self", randn({2, 1, 4, 6})}, {"other", randn({8, 6, 2})}}, .ways = 5},
      {.call = "matmul.default", .tensors = {{"self", randn({6})}, {"other", randn({2, 6, 4})}}, .ways = 3},
      {.call = "addmm.default", .tensors = {{"self", randn({8})}, {"mat1", randn({4, 6})}, {"mat2", randn({6, 8})}}, .ways = 3},
      {.call = "baddbmm.default",
       .tensors = {{"self", randn({1, 4, 8})}, {"batch1", randn({2, 4, 6})}, {"batch2", randn({2, 6, 8})}},
       .ways = 4},
      {.call = "einsum.default",
       .tensors = {{"tensors", randn({2, 4, 6})}, {"tensors", randn({6, 8, 2})}},
       .others = {{"equation", std::string("bij,jkb->ik")}},
       .ways = 4},
      {.call = "scaled_dot_product_attention.default", .tensors = {{"query", q}, {"key", k}, {"value", v}}, .ways = 4},
      {.call = "scaled_dot_product_attention.default",
       .tensors = {{"query", q}, {"key", k}, {"value", v}, {"attn_mask", randn({2, 1, 6, 10})}},
       .ways = 4},
      {.call = "scaled_dot_product_attention.default",
       .tensors = {{"query", q}, {"key", k}, {"value", v}},
       .others = {{"is_causal", true}},
       .ways = 3},
      {.call = "conv2d.default",
       .tensors = {{"input", randn({2, 4, 6, 6})}, {"weight", randn({8, 4, 3, 3})}, {"bias", randn({8})}},
       .ways = 3},
      {.call = "conv1d.default",
       .tensors = {{"input", randn({2, 4, 6})}, {"weight", randn({8, 2, 3})}},
       .others = {{"groups", number(2)}},
       .ways = 1},
      {.call = "conv_transpose2d.input",
       .tensors = {{"input", randn({2, 4, 6, 6})}, {"weight", randn({4, 8, 3, 3})}, {"bias", randn({8})}},
       .ways = 3},
      {.call = "embedding.default", .tensors = {{"weight", randn({10, 6})}, {"indices", indices({2, 4}, 10)}}, .ways = 3},
      {.call = "linalg_inv.default", .tensors = {{"A", randn({4, 3, 3})}}, .ways = 1},
  };
}

std::vector<Case> shapes() {
  const at::Tensor x = randn({4, 6, 8});
  return {
      {.call = "view.default", .tensors = {{"self", x}}, .others = {{"size", list({4, 6, 2, 4})}}, .sizes = "size", .ways = 3},
      {.call = "view.default", .tensors = {{"self", x}}, .others = {{"size", list({24, 8})}}, .sizes = "size", .ways = 2},
      {.call = "flatten.using_ints", .tensors = {{"self", x}}, .others = {{"start_dim", number(1)}}, .ways = 2},
      {.call = "unsqueeze.default", .tensors = {{"self", x}}, .others = {{"dim", number(1)}}, .ways = 3},
      {.call = "squeeze.dim", .tensors = {{"self", randn({4, 1, 8})}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "permute.default", .tensors = {{"self", x}}, .others = {{"dims", list({2, 0, 1})}}, .ways = 3},
      {.call = "transpose.int", .tensors = {{"self", x}}, .others = {{"dim0", number(0)}, {"dim1", number(2)}}, .ways = 3},
      {.call = "expand.default", .tensors = {{"self", randn({4, 1})}}, .others = {{"size", list({4, 6})}}, .sizes = "size", .ways = 1},
      {.call = "repeat.default", .tensors = {{"self", x}}, .others = {{"repeats", list({1, 3, 1})}}, .ways = 2},
      {.call = "repeat_interleave.self_int", .tensors = {{"self", x}}, .others = {{"repeats", number(3)}, {"dim", number(1)}}, .ways = 3},
      {.call = "cat.default", .tensors = {{"tensors", x}, {"tensors", randn({4, 2, 8})}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "stack.default", .tensors = {{"tensors", x}, {"tensors", randn({4, 6, 8})}}, .others = {{"dim", number(1)}}, .ways = 3},
      {.call = "select.int", .tensors = {{"self", x}}, .others = {{"dim", number(1)}, {"index", number(3)}}, .ways = 2},
      {.call = "slice.Tensor",
       .tensors = {{"self", x}},
       .others = {{"dim", number(1)}, {"start", number(1)}, {"end", number(4)}},
       .ways = 2},
      {.call = "index_select.default", .tensors = {{"self", x}, {"index", indices({3}, 6)}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "gather.default", .tensors = {{"self", x}, {"index", indices({4, 3, 8}, 6)}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "index_add.default",
       .tensors = {{"self", x}, {"index", indices({3}, 6)}, {"source", randn({4, 3, 8})}},
       .others = {{"dim", number(1)}},
       .ways = 2},
  };
}

std::vector<Case> others() {
  const at::Tensor x = randn({4, 6, 8});
  const Named norm{{"training", true},       {"momentum", 0.1},           {"eps", 1e-5},
                   {"cudnn_enabled", false}, {"running_mean", NoneArg{}}, {"running_var", NoneArg{}}};
  const Named middle{{"dim", list({1})}};
  std::vector<Case> all{
      {.call = "gelu.default", .tensors = {{"self", x}}, .ways = 3},
      {.call = "add.Tensor", .tensors = {{"self", x}, {"other", randn({6, 1})}}, .ways = 3},
      {.call = "where.self", .tensors = {{"condition", x.gt(0)}, {"self", x}, {"other", randn({8})}}, .ways = 3},
      {.call = "zeros_like.default", .tensors = {{"self", x}}, .ways = 3},
      {.call = "sum.default", .tensors = {{"self", x}}, .ways = 3},
      {.call = "var.correction", .tensors = {{"self", x}}, .others = middle, .ways = 2},
      {.call = "softmax.int", .tensors = {{"self", x}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "cumsum.default", .tensors = {{"self", x}}, .others = {{"dim", number(1)}}, .ways = 2},
      {.call = "sort.default", .tensors = {{"self", x}}, .others = {{"dim", number(1)}}, .results = 2, .ways = 2},
      {.call = "topk.default", .tensors = {{"self", x}}, .others = {{"k", number(2)}, {"dim", number(1)}}, .results = 2, .ways = 2},
      {.call = "glu.default", .tensors = {{"self", x}}, .others = {{"dim", number(2)}}, .ways = 2},
      {.call = "flip.default", .tensors = {{"self", x}}, .others = {{"dims", list({1})}}, .ways = 2},
      {.call = "max_pool2d.default", .tensors = {{"self", randn({2, 4, 6, 6})}}, .others = {{"kernel_size", list({2, 2})}}, .ways = 2},
      {.call = "upsample_nearest2d.vec",
       .tensors = {{"input", randn({2, 4, 6, 6})}},
       .others = {{"output_size", list({12, 12})}, {"scale_factors", NoneArg{}}},
       .ways = 1},
      {.call = "layer_norm.default",
       .tensors = {{"input", x}, {"weight", randn({8})}, {"bias", randn({8})}},
       .others = {{"normalized_shape", list({8})}},
       .ways = 2},
      {.call = "group_norm.default", .tensors = {{"input", x}}, .others = {{"num_groups", number(2)}}, .ways = 1},
      {.call = "batch_norm.default", .tensors = {{"input", x}, {"weight", randn({6})}, {"bias", randn({6})}}, .others = norm, .ways = 1},
      {.call = "mse_loss.default", .tensors = {{"self", x}, {"target", randn({4, 6, 8})}}, .others = {{"reduction", number(0)}}, .ways = 3},
  };
  for (const char* op : {"sum.dim_IntList", "mean.dim", "amax.default", "amin.default"})
    all.push_back({.call = op, .tensors = {{"self", x}}, .others = middle, .ways = 3});
  all.push_back({.call = "prod.dim_int", .tensors = {{"self", x}}, .others = {{"dim", number(1)}}, .ways = 3});
  all.push_back({.call = "any.dim", .tensors = {{"self", x.gt(1)}}, .others = {{"dim", number(1)}}, .ways = 3});
  all.push_back({.call = "all.dim", .tensors = {{"self", x.gt(-1)}}, .others = {{"dim", number(1)}}, .ways = 3});
  return all;
}

class ShardingBruteForce : public testing::Test {
 protected:
  void SetUp() override { at::manual_seed(7); }

  static void check(const Case& one) {
    SCOPED_TRACE(one.call);
    std::vector<at::Tensor> tensors;
    for (const auto& [name, tensor] : one.tensors) tensors.push_back(tensor);
    // The sizes of the result: those that are given, else those that come out.
    std::vector<TensorMeta> results(one.results, GraphBuilder::shape({}));
    for (const NamedArgument& other : one.others) {
      if (other.name == one.sizes) results[0] = GraphBuilder::shape(std::get<Sizes>(other.value));
    }
    const auto whole = compute(one, tensors, results);
    results.clear();
    for (const at::Tensor& tensor : whole) results.push_back(metaOf(tensor));
    const ModelGraph graph = graphOf(one, tensors, results);
    const auto call = callOf(graph, graph.nodes[0], {});
    const std::vector<Sharding> ways = shardingsOf(*call, kShards);
    EXPECT_EQ(ways.size(), one.ways);
    for (const Sharding& way : ways) {
      const auto made = inShards(one, way, results);
      for (std::size_t r = 0; r < whole.size(); ++r) {
        EXPECT_TRUE(made[r].sizes() == whole[r].sizes() && at::allclose(made[r].to(at::kFloat), whole[r].to(at::kFloat), 1e-4, 1e-5))
            << "way " << &way - ways.data() << ", result " << r;
      }
    }
  }
};

TEST_F(ShardingBruteForce, OfProducts) {
  for (const Case& one : products()) check(one);
}
TEST_F(ShardingBruteForce, OfShapes) {
  for (const Case& one : shapes()) check(one);
}
TEST_F(ShardingBruteForce, OfElementwiseOperatorsReductionsAndNorms) {
  for (const Case& one : others()) check(one);
}

/// Every rule that gives shardings has a case.
TEST_F(ShardingBruteForce, TriesEveryRule) {
  std::set<DimensionRule> tried;
  for (const auto& cases : {products(), shapes(), others()}) {
    for (const Case& one : cases) tried.insert(operatorOf("torch.ops.aten." + one.call).dimensions);
  }
  for (int rule = 0; rule < static_cast<int>(DimensionRule::Unknown); ++rule) {
    const auto known = static_cast<DimensionRule>(rule);
    if (known == DimensionRule::Recurrent || known == DimensionRule::Index) continue;  // no sharding; by hand in tests/simulator
    EXPECT_TRUE(tried.contains(known)) << rule;
  }
}

}  // namespace
}  // namespace pw
