// The table of operators says which weight gradients the engine leaves for W: for each operator with parameters, in many forms, the
// backward of a small program is run in two parts, and what it leaves is compared with `weightPartOf`.
#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <deque>
#include <set>

#include "backends/torch/program/program.h"
#include "backends/torch/program/weights.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/weight_part.h"
#include "tests/support/graph_builder.h"

namespace pw {
namespace {

using test::GraphBuilder;
using Sizes = std::vector<std::int64_t>;

/// Where a tensor comes from: a parameter, a value computed from one, or data.
enum class From : std::uint8_t { Parameter, Computed, Data, Indices };

struct Operand {
  std::string name;
  From from;
  Sizes sizes;
};

struct Case {
  std::string call;  ///< `linear.default`
  std::vector<Operand> operands;
  Sizes result;
  std::vector<NamedArgument> others = {};
};

constexpr From W = From::Parameter, X = From::Computed, D = From::Data, I = From::Indices;
const Argument kNone = NoneArg{};

Sizes ints(std::initializer_list<std::int64_t> list) { return list; }

std::vector<Case> products() {
  return {
      {"linear.default", {{"input", X, {2, 3, 4}}, {"weight", W, {5, 4}}, {"bias", W, {5}}}, {2, 3, 5}},
      {"linear.default", {{"input", D, {3, 4}}, {"weight", W, {5, 4}}}, {3, 5}},
      {"linear.default", {{"input", X, {3, 4}}, {"weight", X, {5, 4}}, {"bias", W, {5}}}, {3, 5}},
      {"linear.default", {{"input", W, {3, 4}}, {"weight", W, {5, 4}}}, {3, 5}},
      {"addmm.default", {{"self", W, {5}}, {"mat1", X, {3, 4}}, {"mat2", W, {4, 5}}}, {3, 5}},
      {"addmm.default", {{"self", W, {5}}, {"mat1", X, {3, 4}}, {"mat2", W, {4, 5}}}, {3, 5}, {{"beta", std::int64_t{2}}}},
      {"addmm.default", {{"self", W, {5}}, {"mat1", W, {3, 4}}, {"mat2", X, {4, 5}}}, {3, 5}},
      {"mm.default", {{"self", X, {3, 4}}, {"mat2", W, {4, 5}}}, {3, 5}},
      {"mm.default", {{"self", W, {3, 4}}, {"mat2", X, {4, 5}}}, {3, 5}},
      {"mm.default", {{"self", W, {3, 4}}, {"mat2", W, {4, 5}}}, {3, 5}},
      {"bmm.default", {{"self", X, {2, 3, 4}}, {"mat2", W, {2, 4, 5}}}, {2, 3, 5}},
      {"bmm.default", {{"self", W, {2, 3, 4}}, {"mat2", X, {2, 4, 5}}}, {2, 3, 5}},
      {"matmul.default", {{"self", X, {2, 3, 4}}, {"other", W, {4, 5}}}, {2, 3, 5}},
      {"matmul.default", {{"self", X, {2, 3, 4}}, {"other", W, {4}}}, {2, 3}},
      {"matmul.default", {{"self", W, {3, 4}}, {"other", X, {2, 4, 5}}}, {2, 3, 5}},
      {"matmul.default", {{"self", X, {2, 2, 3, 4}}, {"other", W, {2, 2, 4, 5}}}, {2, 2, 3, 5}},
      {"baddbmm.default", {{"self", W, {2, 3, 5}}, {"batch1", X, {2, 3, 4}}, {"batch2", W, {2, 4, 5}}}, {2, 3, 5}},
      {"addbmm.default", {{"self", W, {3, 5}}, {"batch1", X, {2, 3, 4}}, {"batch2", W, {2, 4, 5}}}, {3, 5}},
      {"addmv.default", {{"self", W, {3}}, {"mat", W, {3, 4}}, {"vec", X, {4}}}, {3}},
      {"mv.default", {{"self", W, {3, 4}}, {"vec", X, {4}}}, {3}},
      {"dot.default", {{"self", X, {4}}, {"tensor", W, {4}}}, {}},
      {"vdot.default", {{"self", X, {4}}, {"other", W, {4}}}, {}},
      {"inner.default", {{"self", X, {3, 4}}, {"other", W, {5, 4}}}, {3, 5}},
      {"tensordot.default", {{"self", X, {3, 4}}, {"other", W, {4, 5}}}, {3, 5}, {{"dims_self", ints({1})}, {"dims_other", ints({0})}}},
      {"bilinear.default", {{"input1", X, {3, 4}}, {"input2", D, {3, 5}}, {"weight", W, {2, 4, 5}}, {"bias", W, {2}}}, {3, 2}},
      {"cdist.default", {{"x1", X, {3, 4}}, {"x2", W, {5, 4}}}, {3, 5}},
      {"scaled_dot_product_attention.default",
       {{"query", X, {1, 2, 3, 4}}, {"key", W, {1, 2, 5, 4}}, {"value", W, {1, 2, 5, 4}}},
       {1, 2, 3, 4}},
  };
}

std::vector<Case> convolutions() {
  const auto full = [](bool transposed) {
    return std::vector<NamedArgument>{{"stride", ints({1})},      {"padding", ints({0})},        {"dilation", ints({1})},
                                      {"transposed", transposed}, {"output_padding", ints({0})}, {"groups", std::int64_t{1}}};
  };
  const auto same = [](std::int64_t width) {
    return Case{"conv1d.padding", {{"input", X, {2, 3, 8}}, {"weight", W, {4, 3, width}}}, {2, 4, 8}, {{"padding", std::string("same")}}};
  };
  return {
      {"conv1d.default", {{"input", X, {2, 3, 8}}, {"weight", W, {4, 3, 3}}, {"bias", W, {4}}}, {2, 4, 6}},
      {"conv1d.default", {{"input", X, {3, 8}}, {"weight", W, {4, 3, 3}}, {"bias", W, {4}}}, {4, 6}},
      same(3),
      same(4),
      {"conv2d.default", {{"input", X, {2, 3, 5, 5}}, {"weight", W, {4, 3, 3, 3}}}, {2, 4, 3, 3}},
      {"conv3d.default", {{"input", X, {2, 3, 3, 3, 3}}, {"weight", W, {4, 3, 2, 2, 2}}}, {2, 4, 2, 2, 2}},
      {"convolution.default", {{"input", X, {2, 3, 8}}, {"weight", W, {4, 3, 3}}, {"bias", W, {4}}}, {2, 4, 6}, full(false)},
      {"convolution.default", {{"input", X, {2, 3, 8}}, {"weight", W, {3, 4, 3}}, {"bias", W, {4}}}, {2, 4, 10}, full(true)},
      {"conv_transpose1d.default", {{"input", X, {2, 3, 8}}, {"weight", W, {3, 4, 3}}, {"bias", W, {4}}}, {2, 4, 10}},
      {"conv_transpose2d.input", {{"input", X, {2, 3, 4, 4}}, {"weight", W, {3, 4, 3, 3}}}, {2, 4, 6, 6}},
      {"conv_transpose3d.input", {{"input", X, {2, 3, 2, 2, 2}}, {"weight", W, {3, 4, 2, 2, 2}}}, {2, 4, 3, 3, 3}},
  };
}

std::vector<Case> others() {
  const Operand x{"input", X, {2, 4, 6}}, weight{"weight", W, {4}}, bias{"bias", W, {4}};
  const auto norm = [](const char* flag, bool set, bool running) {
    std::vector<NamedArgument> arguments{{flag, set}, {"momentum", 0.1}, {"eps", 1e-5}, {"cudnn_enabled", false}};
    if (!running) arguments.insert(arguments.end(), {{"running_mean", kNone}, {"running_var", kNone}});
    return arguments;
  };
  const auto table = [](bool scaled) {
    return Case{"embedding.default", {{"weight", W, {4, 3}}, {"indices", I, {2, 5}}}, {2, 5, 3}, {{"scale_grad_by_freq", scaled}}};
  };
  return {
      table(false),
      table(true),
      {"layer_norm.default", {{"input", X, {2, 4}}, weight, bias}, {2, 4}, {{"normalized_shape", ints({4})}}},
      {"layer_norm.default", {{"input", X, {2, 4}}, {"weight", D, {4}}, bias}, {2, 4}, {{"normalized_shape", ints({4})}}},
      {"rms_norm.default", {{"input", X, {2, 4}}, weight}, {2, 4}, {{"normalized_shape", ints({4})}}},
      {"group_norm.default", {x, weight, bias}, {2, 4, 6}, {{"num_groups", std::int64_t{2}}}},
      {"batch_norm.default", {x, weight, bias}, {2, 4, 6}, norm("training", true, false)},
      {"batch_norm.default", {x, weight, bias, {"running_mean", D, {4}}, {"running_var", D, {4}}}, {2, 4, 6}, norm("training", true, true)},
      {"instance_norm.default", {x, weight, bias}, {2, 4, 6}, norm("use_input_stats", true, false)},
      {"add.Tensor", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}},
      {"add.Tensor", {{"self", W, {3, 1}}, {"other", X, {3, 4}}}, {3, 4}},
      {"add.Tensor", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}, {{"alpha", std::int64_t{2}}}},
      {"mul.Tensor", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}},
      {"mul.Tensor", {{"self", W, {4}}, {"other", W, {4}}}, {4}},
      {"sub.Tensor", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}},
      {"div.Tensor", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}},
      {"maximum.default", {{"self", X, {3, 4}}, {"other", W, {4}}}, {3, 4}},
      {"lerp.Tensor", {{"self", X, {4}}, {"end", W, {4}}, {"weight", W, {4}}}, {4}},
      {"addcmul.default", {{"self", X, {4}}, {"tensor1", W, {4}}, {"tensor2", W, {4}}}, {4}},
      {"prelu.default", {{"self", X, {2, 4, 6}}, weight}, {2, 4, 6}},
      {"sin.default", {{"self", W, {4}}}, {4}},
      {"index_select.default", {{"self", W, {4, 3}}, {"index", I, {5}}}, {5, 3}, {{"dim", std::int64_t{0}}}},
  };
}

std::vector<Case> cases() {
  std::vector<Case> all = products();
  for (const auto& more : {convolutions(), others()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

ModelGraph graphOf(const Case& one) {
  GraphBuilder b;
  std::vector<NamedArgument> arguments;
  for (const Operand& operand : one.operands) {
    TensorMeta meta = GraphBuilder::shape(operand.sizes, operand.from == I ? DType::Int64 : DType::Float32);
    const bool isState = operand.from == W || operand.from == X;
    ValueId id = isState ? b.parameter(operand.name, "", true, meta) : b.input(operand.name, meta);
    if (operand.from == X) id = b.call("tanh", {{"self", id}}, "computed_" + operand.name, meta);
    arguments.push_back({operand.name, id});
  }
  arguments.insert(arguments.end(), one.others.begin(), one.others.end());
  return b.done(b.call("torch.ops.aten." + one.call, arguments, "y", GraphBuilder::shape(one.result)));
}

/// A tensor of small numbers of both signs, each other than its neighbours; indices below 4.
at::Tensor numbers(const TensorMeta& meta) {
  std::int64_t count = 1;
  Sizes sizes;
  for (const SymbolicInt& size : meta.sizes) {
    sizes.push_back(size.hint);
    count *= size.hint;
  }
  const at::Tensor range = at::arange(count);
  return (meta.dtype == DType::Int64 ? range.remainder(4) : (range.to(at::kFloat) * 0.7).sin() + 0.1).reshape(sizes).contiguous();
}

/// What a backward did: how many weight gradients it left, and the gradients of all parameters, summed up at the end.
struct Backward {
  std::size_t left = 0;
  std::vector<at::Tensor> early, late;
};

Backward runBackward(const ModelGraph& graph, bool separate) {
  Backward result;
  WeightQueue queue;
  LowerWeights lower;
  queue.lower = &lower;
  std::vector<NodeId> nodes;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) nodes.emplace_back(n);
  Frame frame(graph.values.size());
  for (const ValueId id : graph.inputs) frame[id.index()] = numbers(*graph.value(id).tensor);
  std::deque<bool> fresh;
  std::vector<std::shared_ptr<at::Tensor>> sums;
  ProgramOptions options;
  options.keep = graph.outputs;
  options.gradients.resize(graph.values.size());
  for (const StateTensor& parameter : graph.parameters) {
    at::Tensor tensor = numbers(*graph.value(parameter.value).tensor).set_requires_grad(true);
    sums.push_back(std::make_shared<at::Tensor>(at::zeros_like(tensor).detach()));
    tensor.mutable_grad() = *sums.back();
    fresh.push_back(false);
    options.gradients[parameter.value.index()] = {sums.back(), &fresh.back()};
    frame[parameter.value.index()] = tensor;
    options.keep.push_back(parameter.value);
  }
  options.weights = separate ? &queue : nullptr;
  options.differentiable = needsGradient(graph);
  const NodeProgram program(graph, nodes, options);
  const std::vector<std::int64_t> symbolic = symbolicValues(graph, {});
  RunOptions run;
  run.symbolic = &symbolic;
  program.run(frame, run);
  const at::Tensor y = frame[graph.outputs.front().index()];
  const at::Tensor gradient = (at::arange(y.numel()).to(at::kFloat) * 0.3).cos().reshape(y.sizes());
  std::vector<WeightGradient> deferred;
  {
    const Deferring deferring(queue, separate ? &deferred : nullptr);
    torch::autograd::backward({y}, {gradient});
  }
  for (const auto& sum : sums) result.early.push_back(sum->clone());
  result.left = deferred.size();
  const c10::AutoGradMode off(false);
  for (const WeightGradient& one : deferred) one.compute();
  for (const auto& sum : sums) result.late.push_back(sum->clone());
  return result;
}

std::string nameOf(const Case& one) { return one.call.substr(0, one.call.find('.')); }

TEST(SplitBackwardOfTheTable, LeavesForWWhatTheTableSays) {
  for (const Case& one : cases()) {
    std::string form = one.call;
    for (const Operand& operand : one.operands) form += " " + operand.name + " " + std::to_string(static_cast<int>(operand.from));
    SCOPED_TRACE(form);
    const ModelGraph graph = graphOf(one);
    const std::vector<bool> gradient = needsGradient(graph);
    const WeightPart part = weightPartOf(graph, graph.nodes.back(), wholeParameters(graph, gradient), gradient);
    const Backward whole = runBackward(graph, false), parts = runBackward(graph, true);
    EXPECT_EQ(parts.left > 0, part != WeightPart::None);
    for (std::size_t p = 0; p < graph.parameters.size(); ++p) {
      EXPECT_TRUE(at::allclose(parts.late[p], whole.late[p], 1e-4, 1e-5)) << graph.parameters[p].name;
      const NamedArgument* argument = nullptr;
      for (const NamedArgument& a : graph.nodes.back().inputs) {
        if (const auto* id = std::get_if<ValueId>(&a.value); id != nullptr && *id == graph.parameters[p].value) argument = &a;
      }
      if (argument == nullptr) continue;  // what the input is computed from: in I
      EXPECT_EQ(parts.early[p].eq(0).all().item<bool>(), part != WeightPart::None) << argument->name << " in I";
    }
  }
}

TEST(SplitBackwardOfTheTable, IsTriedForEveryOperatorWithAWeightPartAndEveryProduct) {
  std::set<std::string> tried;
  for (const Case& one : cases()) tried.insert(nameOf(one));
  // Integers, 8-bit and grouped products of GPUs, kernels that exports do not name, and those that take their tensors as a list.
  const std::set<std::string_view> notHere{"_int_mm",
                                           "_scaled_mm",
                                           "_grouped_mm",
                                           "_scaled_grouped_mm",
                                           "_convolution",
                                           "embedding_bag",
                                           "_embedding_bag",
                                           "chain_matmul",
                                           "einsum",
                                           "lstm",
                                           "gru",
                                           "rnn_tanh",
                                           "rnn_relu",
                                           "lstm_cell",
                                           "gru_cell",
                                           "rnn_tanh_cell",
                                           "rnn_relu_cell",
                                           "torch.ops.transformers.grouped_mm_fallback.default"};
  for (const auto family : operators::families()) {
    for (const Operator& row : family) {
      const bool isProduct = row.work >= Work::Product && row.work != Work::Transform;
      if (row.weightPart == WeightPart::None && (!isProduct || notHere.contains(row.name) || row.name.starts_with("_scaled_dot"))) continue;
      EXPECT_TRUE(tried.contains(std::string(row.name))) << row.name;
    }
  }
}

}  // namespace
}  // namespace pw
