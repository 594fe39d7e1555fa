#include "backends/torch/program/weight_rules.h"

namespace pw::weights {
namespace {

/// What an operator computes with: its input with history, weight and bias without; under autocast all in its type.
struct Operands {
  Tensor x, w, b;
};

/// Nothing where the plain operator must take them. `weightAt`, `biasAt`: their places among the operator's arguments.
std::optional<Operands> operandsOf(const WeightRule& rule, const Tensor& x, const Tensor& w, std::size_t weightAt, const Tensor& b = {},
                                   std::size_t biasAt = 0) {
  const auto type = autocastType(x);
  if (!type) {
    if (!fits(x, w) || (b.defined() && !fits(b, w))) return std::nullopt;
    return Operands{x, w.detach(), b.defined() ? b.detach() : b};
  }
  if (!autocastType(w) || (b.defined() && !autocastType(b))) return std::nullopt;
  const auto lower = [&](const Tensor& t, std::size_t at) {
    if (!t.defined()) return t;
    return rule.gradients[at].sum ? rule.queue->lower->of(t.detach(), *type)
                                  : t.detach().to(*type);  // what is no parameter's memory may be gone tomorrow
  };
  return Operands{x.to(*type), lower(w, weightAt), lower(b, biasAt)};
}

Tensor rows(const Tensor& t) { return t.dim() == 2 ? t : t.reshape({-1, t.size(-1)}); }

/// y = x · Wᵀ + b, or, where W stands transposed (`mm`, `matmul`), y = x · W + b.
class ProductNode final : public RuleNode {
 public:
  ProductNode(const WeightRule& rule, const Tensor& input, Tensor weight, bool transposed, std::size_t weightAt,
              std::optional<std::size_t> biasAt)
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

}  // namespace

bool applyLinear(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1), b = optionalAt(stack, 2);
  if (w.dim() != 2 || x.dim() < 1) return false;
  const auto use = operandsOf(rule, x, w, 1, b, 2);
  if (!use) return false;
  const auto node = std::make_shared<ProductNode>(rule, use->x, use->w, false, 1, 2);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, b.defined() ? at::linear(use->x, use->w, use->b) : at::linear(use->x, use->w), node);
}

bool applyAddmm(const WeightRule& rule, Stack& stack) {
  const Tensor b = tensorAt(stack, 0), x = tensorAt(stack, 1), w = tensorAt(stack, 2);
  if (stack[3].toScalar().toDouble() != 1 || stack[4].toScalar().toDouble() != 1) return false;
  const auto use = operandsOf(rule, x, w, 2, b, 0);
  if (!use) return false;
  const auto node = std::make_shared<ProductNode>(rule, use->x, use->w, true, 2, 0);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::addmm(use->b, use->x, use->w), node);
}

namespace {

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

}  // namespace

/// mm, bmm and matmul: of matrices, of batches of equal size, or of anything with a matrix.
bool applyMatmul(const WeightRule& rule, Stack& stack) {
  const Tensor a = tensorAt(stack, 0), b = tensorAt(stack, 1);
  const bool batches = a.dim() == 3 && b.dim() == 3 && a.size(0) == b.size(0);
  if (rule.gradients[0].sum) {
    if (!batches && !(a.dim() == 2 && b.dim() == 2)) return false;
    const auto use = operandsOf(rule, b, a, 0);
    if (!use) return false;
    const auto node = std::make_shared<LeftProductNode>(rule, use->x, use->w);
    const at::AutoDispatchBelowADInplaceOrView below;
    return finish(stack, at::matmul(use->w, use->x), node);
  }
  if (!batches && !(b.dim() == 2 && a.dim() >= 2)) return false;
  const auto use = operandsOf(rule, a, b, 1);
  if (!use) return false;
  std::shared_ptr<RuleNode> node;
  if (batches) {
    node = std::make_shared<BatchedProductNode>(rule, use->x, use->w);
  } else {
    node = std::make_shared<ProductNode>(rule, use->x, use->w, true, 1, std::nullopt);
  }
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::matmul(use->x, use->w), node);
}

namespace {

struct Convolution {
  std::vector<std::int64_t> stride, padding, dilation, outputPadding;
  bool transposed = false;
  std::int64_t groups = 1;
};

class ConvolutionNode final : public RuleNode {
 public:
  ConvolutionNode(const WeightRule& rule, const Tensor& input, Tensor weight, Convolution form)
      : RuleNode(rule, input), weight_(std::move(weight)), form_(std::move(form)) {}
  Tensor input(const Tensor& gradient, const Tensor& input) const override {
    return std::get<0>(run(gradient, input, {true, false, false}));
  }
  void weights(const Tensor& gradient, const Tensor& input) const override {
    add(run(gradient, input, {false, sumOf(1).wanted(), sumOf(2).wanted()}));
  }
  Tensor both(const Tensor& gradient, const Tensor& input) const override {
    const auto all = run(gradient, input, {needsInput(), sumOf(1).wanted(), sumOf(2).wanted()});
    add(all);
    return std::get<0>(all);
  }

 private:
  using Gradients = std::tuple<Tensor, Tensor, Tensor>;
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const {
    const std::int64_t channels = form_.transposed ? weight_.size(1) * form_.groups : weight_.size(0);
    return at::convolution_backward(gradient, input, weight_, at::OptionalIntArrayRef({channels}), form_.stride, form_.padding,
                                    form_.dilation, form_.transposed, form_.outputPadding, form_.groups, mask);
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
  const Tensor b = optionalAt(stack, 2);
  const auto use = operandsOf(rule, tensorAt(stack, 0), tensorAt(stack, 1), 1, b, 2);
  if (!use) return false;
  const auto node = std::make_shared<ConvolutionNode>(rule, use->x, use->w, form);
  const at::AutoDispatchBelowADInplaceOrView below;
  const auto bias = b.defined() ? std::optional<Tensor>(use->b) : std::nullopt;
  return finish(
      stack,
      at::convolution(use->x, use->w, bias, form.stride, form.padding, form.dilation, form.transposed, form.outputPadding, form.groups),
      node);
}

}  // namespace

/// conv1d, conv2d, conv3d, also with padding "same" and "valid".
bool applyConv(const WeightRule& rule, Stack& stack) {
  const Tensor x = tensorAt(stack, 0), w = tensorAt(stack, 1);
  if (x.dim() != w.dim()) return false;  // without a batch dimension
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
  if (x.dim() != w.dim()) return false;
  const auto n = static_cast<std::size_t>(w.dim() - 2);
  return convolve(
      rule, stack,
      {spread(stack[3], n), spread(stack[4], n), spread(stack[5], n), spread(stack[7], n), stack[6].toBool(), stack[8].toInt()});
}

}  // namespace pw::weights
