#include "backends/torch_weights.h"

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <optional>

namespace pw {
namespace {

using at::Tensor;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Stack = WeightRule::Stack;

/// Adds a gradient into a parameter's sum; the first of a step overwrites.
class Sum {
 public:
  explicit Sum(const ParameterGradient& gradient) : gradient_(gradient) {}
  [[nodiscard]] bool wanted() const { return gradient_.sum != nullptr; }

  void add(const Tensor& gradient) const {
    Tensor& sum = *gradient_.sum;
    takeFresh() ? sum.copy_(gradient.sizes() == sum.sizes() ? gradient : gradient.reshape(sum.sizes())) : sum.add_(gradient.reshape(sum.sizes()));
  }
  void addSum(const Tensor& gradient) const { add(at::sum_to(gradient, gradient_.sum->sizes())); }
  /// [n, k] += a [n, r] · b [r, k]
  void addProduct(const Tensor& a, const Tensor& b) const {
    Tensor& sum = *gradient_.sum;
    takeFresh() ? at::mm_out(sum, a, b) : sum.addmm_(a, b);
  }
  void addBatchedProduct(const Tensor& a, const Tensor& b) const {
    Tensor& sum = *gradient_.sum;
    takeFresh() ? at::bmm_out(sum, a, b) : sum.baddbmm_(a, b);
  }
  void addRows(const Tensor& indices, const Tensor& rows) const {
    if (takeFresh()) gradient_.sum->zero_();
    gradient_.sum->index_add_(0, indices, rows);
  }

 private:
  [[nodiscard]] bool takeFresh() const { return std::exchange(*gradient_.fresh, false); }

  const ParameterGradient& gradient_;
};

/// Backward of an operator with weights. Subclasses say what the two gradients are.
class RuleNode : public torch::autograd::Node {
 public:
  RuleNode(const WeightRule& rule, const Tensor& input, bool keepInput = true) : rule_(rule), needsInput_(input.requires_grad()) {
    if (keepInput) saved_ = SavedVariable(input, false);
    set_next_edges(torch::autograd::collect_next_edges(input));
  }

  std::string name() const override { return "WeightRule"; }

  variable_list apply(variable_list&& gradients) override {
    const Tensor gradient = gradients[0];
    if (!gradient.defined()) return {Tensor()};
    const Tensor input = saved_.unpack();
    Tensor inputGradient;
    if (rule_.queue->deferred != nullptr) {
      if (needsInput_) inputGradient = this->input(gradient, input);
      leave(*rule_.queue->deferred, gradient, input);
    } else {
      inputGradient = both(gradient, input);
    }
    if (rule_.queue->betweenOperators) rule_.queue->betweenOperators();
    return {inputGradient};
  }

  void release_variables() override { saved_.reset_data(); }

  [[nodiscard]] virtual Tensor input(const Tensor& gradient, const Tensor& input) const = 0;
  virtual void weights(const Tensor& gradient, const Tensor& input) const = 0;
  /// Both at once, where that is cheaper.
  [[nodiscard]] virtual Tensor both(const Tensor& gradient, const Tensor& input) const {
    Tensor result;
    if (needsInput_) result = this->input(gradient, input);
    weights(gradient, input);
    return result;
  }

 protected:
  [[nodiscard]] Sum sumOf(std::size_t argument) const { return Sum(rule_.gradients[argument]); }
  [[nodiscard]] bool needsInput() const { return needsInput_; }

 private:
  void leave(std::vector<WeightGradient>& deferred, const Tensor& gradient, const Tensor& input) {
    const void* kept = input.defined() ? input.data_ptr() : nullptr;
    Bytes held = static_cast<Bytes>(gradient.nbytes());
    const auto recent = deferred.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(deferred.size(), 8));
    if (kept != nullptr && std::none_of(recent, deferred.end(), [&](const WeightGradient& w) { return w.input == kept; })) held += static_cast<Bytes>(input.nbytes());
    const auto self = std::static_pointer_cast<RuleNode>(shared_from_this());
    deferred.push_back({rule_.node, held, kept, [self, gradient, input] { self->weights(gradient, input); }});
  }

  const WeightRule& rule_;  // of the program, which outlives its backward
  SavedVariable saved_;
  bool needsInput_;
};

const Tensor& tensorAt(const Stack& stack, std::size_t i) { return stack[i].toTensor(); }
Tensor optionalAt(const Stack& stack, std::size_t i) { return stack[i].isTensor() ? stack[i].toTensor() : Tensor(); }

/// Rules hold for floating tensors of one type.
bool fits(const Tensor& input, const Tensor& weight) { return input.is_floating_point() && input.scalar_type() == weight.scalar_type(); }

/// Puts the result with its backward on the stack.
bool finish(Stack& stack, Tensor result, const std::shared_ptr<RuleNode>& node) {
  torch::autograd::set_history(result, node);
  stack.clear();
  stack.emplace_back(std::move(result));
  return true;
}

Tensor rows(const Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); }

/// y = x · Wᵀ + b, or, where W stands transposed (`mm`, `matmul`), y = x · W + b.
class ProductNode final : public RuleNode {
 public:
  ProductNode(const WeightRule& rule, const Tensor& input, Tensor weight, bool transposed, std::size_t weightAt, std::optional<std::size_t> biasAt)
      : RuleNode(rule, input), weight_(std::move(weight)), transposed_(transposed), weightAt_(weightAt), biasAt_(biasAt) {}

  Tensor input(const Tensor& gradient, const Tensor& input) const override {
    return rows(gradient).mm(transposed_ ? weight_.t() : weight_).view(input.sizes());
  }
  void weights(const Tensor& gradient, const Tensor& input) const override {
    const Tensor g = rows(gradient);
    if (const Sum sum = sumOf(weightAt_); sum.wanted()) {
      transposed_ ? sum.addProduct(rows(input).t(), g) : sum.addProduct(g.t(), rows(input));
    }
    if (biasAt_ && sumOf(*biasAt_).wanted()) sumOf(*biasAt_).addSum(g);
  }

 private:
  Tensor weight_;
  bool transposed_;
  std::size_t weightAt_;
  std::optional<std::size_t> biasAt_;
};

bool applyLinear(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1), b = optionalAt(stack, 2);
  if (!fits(x, w) || w.dim() != 2 || x.dim() < 1) return false;
  const auto node = std::make_shared<ProductNode>(rule, x, w.detach(), false, 1, 2);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, b.defined() ? at::linear(x, w, b) : at::linear(x, w), node);
}

bool applyAddmm(const WeightRule& rule, Stack& stack) {
  const Tensor b = tensorAt(stack, 0), x = tensorAt(stack, 1), w = tensorAt(stack, 2);
  if (!fits(x, w) || !fits(b, w) || stack[3].toScalar().toDouble() != 1 || stack[4].toScalar().toDouble() != 1) return false;
  const auto node = std::make_shared<ProductNode>(rule, x, w.detach(), true, 2, 0);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::addmm(b, x, w), node);
}

/// y = W · x with the weight first.
class LeftProductNode final : public RuleNode {
 public:
  LeftProductNode(const WeightRule& rule, const Tensor& input, Tensor weight) : RuleNode(rule, input), weight_(std::move(weight)) {}
  Tensor input(const Tensor& gradient, const Tensor& /*input*/) const override { return weight_.transpose(-2, -1).matmul(gradient); }
  void weights(const Tensor& gradient, const Tensor& input) const override {
    weight_.dim() == 2 ? sumOf(0).addProduct(gradient, input.t()) : sumOf(0).addBatchedProduct(gradient, input.transpose(1, 2));
  }

 private:
  Tensor weight_;
};

/// y = x · W for batches of matrices.
class BatchedProductNode final : public RuleNode {
 public:
  BatchedProductNode(const WeightRule& rule, const Tensor& input, Tensor weight) : RuleNode(rule, input), weight_(std::move(weight)) {}
  Tensor input(const Tensor& gradient, const Tensor& /*input*/) const override { return gradient.bmm(weight_.transpose(1, 2)); }
  void weights(const Tensor& gradient, const Tensor& input) const override { sumOf(1).addBatchedProduct(input.transpose(1, 2), gradient); }

 private:
  Tensor weight_;
};

/// mm, bmm and matmul: of matrices, of batches of equal size, or of anything with a matrix.
bool applyMatmul(const WeightRule& rule, Stack& stack) {
  const Tensor a = tensorAt(stack, 0), b = tensorAt(stack, 1);
  if (!fits(a, b)) return false;
  std::shared_ptr<RuleNode> node;
  if (rule.gradients[0].sum) {
    const bool known = (a.dim() == 2 && b.dim() == 2) || (a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0));
    if (!known) return false;
    node = std::make_shared<LeftProductNode>(rule, b, a.detach());
  } else if (b.dim() == 2 && a.dim() >= 2) {
    node = std::make_shared<ProductNode>(rule, a, b.detach(), true, 1, std::nullopt);
  } else if (a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0)) {
    node = std::make_shared<BatchedProductNode>(rule, a, b.detach());
  } else {
    return false;
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::matmul(a, b), node);
}

struct Convolution {
  std::vector<std::int64_t> stride, padding, dilation, outputPadding;
  bool transposed = false;
  std::int64_t groups = 1;
};

class ConvolutionNode final : public RuleNode {
 public:
  ConvolutionNode(const WeightRule& rule, const Tensor& input, Tensor weight, Convolution form)
      : RuleNode(rule, input), weight_(std::move(weight)), form_(std::move(form)) {}
  Tensor input(const Tensor& gradient, const Tensor& input) const override { return std::get<0>(run(gradient, input, {true, false, false})); }
  void weights(const Tensor& gradient, const Tensor& input) const override { add(run(gradient, input, {false, sumOf(1).wanted(), sumOf(2).wanted()})); }
  Tensor both(const Tensor& gradient, const Tensor& input) const override {
    const auto all = run(gradient, input, {needsInput(), sumOf(1).wanted(), sumOf(2).wanted()});
    add(all);
    return std::get<0>(all);
  }

 private:
  using Gradients = std::tuple<Tensor, Tensor, Tensor>;
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const {
    const std::int64_t channels = form_.transposed ? weight_.size(1) * form_.groups : weight_.size(0);
    return at::convolution_backward(gradient, input, weight_, at::OptionalIntArrayRef({channels}), form_.stride, form_.padding, form_.dilation, form_.transposed,
                                    form_.outputPadding, form_.groups, mask);
  }
  void add(const Gradients& gradients) const {
    if (sumOf(1).wanted()) sumOf(1).add(std::get<1>(gradients));
    if (sumOf(2).wanted()) sumOf(2).add(std::get<2>(gradients));
  }

  Tensor weight_;
  Convolution form_;
};

/// A list of one stands for all dimensions.
std::vector<std::int64_t> spread(const c10::IValue& value, std::size_t dimensions) {
  std::vector<std::int64_t> list = value.isInt() ? std::vector<std::int64_t>{value.toInt()} : value.toIntVector();
  if (list.size() == 1) list.resize(dimensions, list.front());
  return list;
}

bool convolve(const WeightRule& rule, Stack& stack, Convolution form) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1), b = optionalAt(stack, 2);
  const auto node = std::make_shared<ConvolutionNode>(rule, x, w.detach(), form);
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto bias = b.defined() ? std::optional<Tensor>(b) : std::nullopt;
  return finish(stack, at::convolution(x, w, bias, form.stride, form.padding, form.dilation, form.transposed, form.outputPadding, form.groups), node);
}

/// conv1d, conv2d, conv3d, also with padding "same" and "valid".
bool applyConv(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1);
  if (!fits(x, w) || x.dim() != w.dim()) return false;  // without a batch dimension
  const auto n = static_cast<std::size_t>(w.dim() - 2);
  Convolution form{spread(stack[3], n), {}, spread(stack[5], n), std::vector<std::int64_t>(n, 0), false, stack[6].toInt()};
  if (!stack[4].isString()) {
    form.padding = spread(stack[4], n);
  } else {
    for (std::size_t i = 0; i < n; ++i) {
      const std::int64_t total = stack[4].toStringRef() == "valid" ? 0 : form.dilation[i] * (w.size(static_cast<std::int64_t>(i) + 2) - 1);
      if (total % 2 != 0) return false;  // padded on one side more than on the other
      form.padding.push_back(total / 2);
    }
  }
  return convolve(rule, stack, std::move(form));
}

bool applyConvolution(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1);
  if (!fits(x, w) || x.dim() != w.dim()) return false;
  const auto n = static_cast<std::size_t>(w.dim() - 2);
  return convolve(rule, stack, {spread(stack[3], n), spread(stack[4], n), spread(stack[5], n), spread(stack[7], n), stack[6].toBool(), stack[8].toInt()});
}

/// Rows of a table.
class EmbeddingNode final : public RuleNode {
 public:
  EmbeddingNode(const WeightRule& rule, const Tensor& indices, std::int64_t padding) : RuleNode(rule, indices), padding_(padding) {}
  Tensor input(const Tensor& /*gradient*/, const Tensor& /*indices*/) const override { return {}; }
  void weights(const Tensor& gradient, const Tensor& indices) const override {
    Tensor chosen = indices.reshape({-1}), g = gradient.reshape({-1, gradient.size(-1)});
    if (padding_ >= 0) {
      const Tensor kept = chosen.ne(padding_).nonzero().reshape({-1});
      chosen = chosen.index_select(0, kept);
      g = g.index_select(0, kept);
    }
    sumOf(0).addRows(chosen, g);
  }

 private:
  std::int64_t padding_;
};

bool applyEmbedding(const WeightRule& rule, Stack& stack) {
  const Tensor w = tensorAt(stack, 0), indices = tensorAt(stack, 1);
  std::int64_t padding = stack[2].toInt();
  if (w.dim() != 2 || !w.is_floating_point() || stack[3].toBool() || stack[4].toBool()) return false;  // scaled by frequency, or sparse
  const auto node = std::make_shared<EmbeddingNode>(rule, indices, padding);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::embedding(w, indices, padding), node);
}

/// Norms whose backward gives the three gradients by a mask.
class NormNode : public RuleNode {
 public:
  using RuleNode::RuleNode;
  Tensor input(const Tensor& gradient, const Tensor& input) const final { return std::get<0>(run(gradient, input, {true, false, false})); }
  void weights(const Tensor& gradient, const Tensor& input) const final { add(run(gradient, input, {false, weight_.wanted(), bias_.wanted()})); }
  Tensor both(const Tensor& gradient, const Tensor& input) const final {
    const auto all = run(gradient, input, {needsInput(), weight_.wanted(), bias_.wanted()});
    add(all);
    return std::get<0>(all);
  }

 protected:
  NormNode(const WeightRule& rule, const Tensor& input, std::size_t weightAt, std::size_t biasAt)
      : RuleNode(rule, input), weight_(sumOf(weightAt)), bias_(sumOf(biasAt)) {}
  using Gradients = std::tuple<Tensor, Tensor, Tensor>;
  [[nodiscard]] virtual Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const = 0;

 private:
  void add(const Gradients& gradients) const {
    if (weight_.wanted()) weight_.add(std::get<1>(gradients));
    if (bias_.wanted()) bias_.add(std::get<2>(gradients));
  }
  Sum weight_, bias_;
};

class LayerNormNode final : public NormNode {
 public:
  LayerNormNode(const WeightRule& rule, const Tensor& input, std::vector<std::int64_t> shape, Tensor weight, Tensor bias)
      : NormNode(rule, input, 2, 3), shape_(std::move(shape)), weight_(std::move(weight)), bias_(std::move(bias)) {}
  Tensor mean, deviation;

 private:
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const override {
    return at::native_layer_norm_backward(gradient.contiguous(), input.contiguous(), shape_, mean, deviation, weight_, bias_, mask);
  }
  std::vector<std::int64_t> shape_;
  std::optional<Tensor> weight_, bias_;
};

std::optional<Tensor> detached(const Tensor& t) { return t.defined() ? std::optional<Tensor>(t.detach()) : std::nullopt; }

bool applyLayerNorm(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = optionalAt(stack, 2), b = optionalAt(stack, 3);
  const auto shape = stack[1].toIntVector();
  if (!w.defined() || !fits(x, w)) return false;
  const auto node = std::make_shared<LayerNormNode>(rule, x, shape, w.detach(), b.defined() ? b.detach() : Tensor());
  const at::AutoDispatchBelowADInplaceOrView below;
  auto [y, mean, deviation] = at::native_layer_norm(x, shape, detached(w), detached(b), stack[4].toDouble());
  node->mean = mean;
  node->deviation = deviation;
  return finish(stack, y, node);
}

class GroupNormNode final : public NormNode {
 public:
  GroupNormNode(const WeightRule& rule, const Tensor& input, std::int64_t groups, std::optional<Tensor> weight)
      : NormNode(rule, input, 2, 3), groups_(groups), weight_(std::move(weight)) {}
  Tensor mean, deviation;

 private:
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const override {
    const std::int64_t n = input.size(0), c = input.size(1);
    return at::native_group_norm_backward(gradient.contiguous(), input.contiguous(), mean, deviation, weight_, n, c, input.numel() / (n * c), groups_, mask);
  }
  std::int64_t groups_;
  std::optional<Tensor> weight_;
};

bool applyGroupNorm(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = optionalAt(stack, 2), b = optionalAt(stack, 3);
  const std::int64_t groups = stack[1].toInt();
  if (!w.defined() || !fits(x, w) || x.numel() == 0) return false;
  const auto node = std::make_shared<GroupNormNode>(rule, x, groups, w.detach());
  const at::AutoDispatchBelowADInplaceOrView below;
  const std::int64_t n = x.size(0), c = x.size(1);
  auto [y, mean, deviation] = at::native_group_norm(x.contiguous(), detached(w), detached(b), n, c, x.numel() / (n * c), groups, stack[4].toDouble());
  node->mean = mean;
  node->deviation = deviation;
  return finish(stack, y, node);
}

class BatchNormNode final : public NormNode {
 public:
  BatchNormNode(const WeightRule& rule, const Tensor& input, std::optional<Tensor> weight, bool training, double epsilon)
      : NormNode(rule, input, 1, 2), weight_(std::move(weight)), training_(training), epsilon_(epsilon) {}
  std::optional<Tensor> runningMean, runningVariance;
  Tensor mean, deviation;

 private:
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const override {
    return at::native_batch_norm_backward(gradient, input, weight_, runningMean, runningVariance, mean, deviation, training_, epsilon_, mask);
  }
  std::optional<Tensor> weight_;
  bool training_;
  double epsilon_;
};

bool applyBatchNorm(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = optionalAt(stack, 1), b = optionalAt(stack, 2);
  if (!w.defined() || !fits(x, w) || x.numel() == 0) return false;
  const bool training = stack[5].toBool();
  const auto node = std::make_shared<BatchNormNode>(rule, x, w.detach(), training, stack[7].toDouble());
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto runningMean = detached(optionalAt(stack, 3)), runningVariance = detached(optionalAt(stack, 4));
  auto [y, mean, deviation] =
      at::native_batch_norm(x, detached(w), detached(b), runningMean, runningVariance, training, stack[6].toDouble(), stack[7].toDouble());
  node->mean = mean;
  node->deviation = deviation;
  if (!training) {
    node->runningMean = runningMean;
    node->runningVariance = runningVariance;
  }
  return finish(stack, y, node);
}

/// y = x + w or x · w with w broadcast.
class ElementwiseNode final : public RuleNode {
 public:
  ElementwiseNode(const WeightRule& rule, const Tensor& input, Tensor factor, std::size_t weightAt)
      : RuleNode(rule, input, factor.defined()), sizes_(input.sizes().vec()), factor_(std::move(factor)), weightAt_(weightAt) {}
  Tensor input(const Tensor& gradient, const Tensor& /*input*/) const override {
    return at::sum_to(factor_.defined() ? gradient * factor_ : gradient, sizes_);
  }
  void weights(const Tensor& gradient, const Tensor& input) const override { sumOf(weightAt_).addSum(factor_.defined() ? gradient * input : gradient); }

 private:
  std::vector<std::int64_t> sizes_;
  Tensor factor_;  // undefined: addition, which keeps nothing
  std::size_t weightAt_;
};

bool applyElementwise(const WeightRule& rule, Stack& stack, bool product) {
  if (!stack[0].isTensor() || !stack[1].isTensor()) return false;
  const std::size_t weightAt = rule.gradients[1].sum ? 1 : 0;
  const Tensor w = tensorAt(stack, weightAt), x = tensorAt(stack, 1 - weightAt);
  if (!fits(x, w) || (!product && stack[2].toScalar().toDouble() != 1)) return false;
  const auto node = std::make_shared<ElementwiseNode>(rule, x, product ? w.detach() : Tensor(), weightAt);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, product ? at::mul(x, w) : at::add(x, w), node);
}

bool applyAdd(const WeightRule& rule, Stack& stack) { return applyElementwise(rule, stack, false); }
bool applyMul(const WeightRule& rule, Stack& stack) { return applyElementwise(rule, stack, true); }

/// The normalisation by autograd, then the multiplication.
bool applyRmsNorm(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = optionalAt(stack, 2);
  if (!w.defined() || !fits(x, w)) return false;
  const auto epsilon = stack[3].isNone() ? std::nullopt : std::optional<double>(stack[3].toDouble());
  const Tensor normal = at::rms_norm(x, stack[1].toIntVector(), std::nullopt, epsilon);
  const auto node = std::make_shared<ElementwiseNode>(rule, normal, w.detach(), 2);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::mul(normal, w), node);
}

struct RuleEntry {
  const char* name;
  bool (*apply)(const WeightRule&, Stack&);
  std::vector<std::size_t> weights;  ///< arguments that may be the parameters
};

const std::vector<RuleEntry>& rules() {
  static const std::vector<RuleEntry> all{
      {"linear", &applyLinear, {1, 2}},         {"addmm", &applyAddmm, {0, 2}},         {"mm", &applyMatmul, {0, 1}},
      {"bmm", &applyMatmul, {0, 1}},            {"matmul", &applyMatmul, {0, 1}},       {"conv1d", &applyConv, {1, 2}},
      {"conv2d", &applyConv, {1, 2}},           {"conv3d", &applyConv, {1, 2}},         {"convolution", &applyConvolution, {1, 2}},
      {"embedding", &applyEmbedding, {0}},      {"layer_norm", &applyLayerNorm, {2, 3}}, {"rms_norm", &applyRmsNorm, {2}},
      {"group_norm", &applyGroupNorm, {2, 3}},  {"batch_norm", &applyBatchNorm, {1, 2}}, {"add", &applyAdd, {0, 1}},
      {"mul", &applyMul, {0, 1}},
  };
  return all;
}

}  // namespace

WeightRule weightRule(const std::string& operatorName, NodeId node, const WeightQueue* queue, std::vector<ParameterGradient> gradients,
                      const std::vector<bool>& differentiable) {
  const auto entry = std::find_if(rules().begin(), rules().end(), [&](const RuleEntry& e) { return operatorName == e.name; });
  if (entry == rules().end()) return {};
  const auto isWeight = [&](std::size_t i) { return std::find(entry->weights.begin(), entry->weights.end(), i) != entry->weights.end(); };
  std::size_t trained = 0, others = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].sum && !isWeight(i)) return {};
    trained += gradients[i].sum ? 1 : 0;
    others += !gradients[i].sum && differentiable[i] ? 1 : 0;
  }
  const bool symmetric = entry->weights == std::vector<std::size_t>{0, 1};
  // Beside the parameters one input may need a gradient, and it must be where the rule expects it.
  bool fit = trained > 0 && others <= 1 && (!symmetric || trained == 1);
  for (std::size_t i = 0; i < gradients.size() && !symmetric; ++i) fit = fit && !(isWeight(i) && differentiable[i] && !gradients[i].sum);
  if (!fit) return {};
  return {node, queue, std::move(gradients), entry->apply};
}

}  // namespace pw
