#include "backends/torch/program/weight_rules.h"

namespace pw::weights {
namespace {

/// Rows of a table.
class EmbeddingNode final : public RuleNode {
 public:
  EmbeddingNode(const WeightRule& rule, const Tensor& indices, std::int64_t padding) : RuleNode(rule, indices), padding_(padding) {}
  Tensor input(const Tensor& /*gradient*/, const Tensor& /*indices*/) const override { return {}; }
  void weights(const Tensor& gradient, const Tensor& indices) const override {
    const Tensor chosen = indices.reshape({-1});
    Tensor g = gradient.reshape({-1, gradient.size(-1)});
    if (padding_ >= 0)
      g = g.masked_fill(chosen.eq(padding_).unsqueeze(1), 0);  // to leave them out, the host would have to wait for a GPU to count them
    sumOf(0).addRows(chosen, g);
  }

 private:
  std::int64_t padding_;
};

}  // namespace

bool applyEmbedding(const WeightRule& rule, Stack& stack) {
  const Tensor w = tensorAt(stack, 0), indices = tensorAt(stack, 1);
  std::int64_t padding = stack[2].toInt();
  if (w.dim() != 2 || !w.is_floating_point() || stack[3].toBool() || stack[4].toBool()) return false;  // scaled by frequency, or sparse
  const auto node = std::make_shared<EmbeddingNode>(rule, indices, padding);
  const at::AutoDispatchBelowADInplaceOrView below;
  return finish(stack, at::embedding(w, indices, padding), node);
}

namespace {

/// Norms whose backward gives the three gradients by a mask.
class NormNode : public RuleNode {
 public:
  using RuleNode::RuleNode;
  Tensor input(const Tensor& gradient, const Tensor& input) const final { return std::get<0>(run(gradient, input, {true, false, false})); }
  void weights(const Tensor& gradient, const Tensor& input) const final {
    add(run(gradient, input, {false, weight_.wanted(), bias_.wanted()}));
  }
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

/// Autocast computes these norms in their weights' type.
Tensor normInput(const Tensor& x, const Tensor& w) { return w.defined() && autocastType(x) && autocastType(w) ? x.to(w.scalar_type()) : x; }

std::optional<Tensor> detached(const Tensor& t) { return t.defined() ? std::optional<Tensor>(t.detach()) : std::nullopt; }

}  // namespace

bool applyLayerNorm(const WeightRule& rule, Stack& stack) {
  const Tensor w = optionalAt(stack, 2), b = optionalAt(stack, 3), x = normInput(tensorAt(stack, 0), w);
  const auto shape = stack[1].toIntVector();
  if (!w.defined() || !fits(x, w)) return false;
  const auto node = std::make_shared<LayerNormNode>(rule, x, shape, w.detach(), b.defined() ? b.detach() : Tensor());
  const at::AutoDispatchBelowADInplaceOrView below;
  auto [y, mean, deviation] = at::native_layer_norm(x, shape, detached(w), detached(b), stack[4].toDouble());
  node->mean = mean;
  node->deviation = deviation;
  return finish(stack, y, node);
}

namespace {

class GroupNormNode final : public NormNode {
 public:
  GroupNormNode(const WeightRule& rule, const Tensor& input, std::int64_t groups, std::optional<Tensor> weight)
      : NormNode(rule, input, 2, 3), groups_(groups), weight_(std::move(weight)) {}
  Tensor mean, deviation;

 private:
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const override {
    const std::int64_t n = input.size(0), c = input.size(1);
    return at::native_group_norm_backward(gradient.contiguous(), input.contiguous(), mean, deviation, weight_, n, c,
                                          input.numel() / (n * c), groups_, mask);
  }
  std::int64_t groups_;
  std::optional<Tensor> weight_;
};

}  // namespace

bool applyGroupNorm(const WeightRule& rule, Stack& stack) {
  const Tensor w = optionalAt(stack, 2), b = optionalAt(stack, 3), x = normInput(tensorAt(stack, 0), w);
  const std::int64_t groups = stack[1].toInt();
  if (!w.defined() || !fits(x, w) || x.numel() == 0) return false;
  const auto node = std::make_shared<GroupNormNode>(rule, x, groups, w.detach());
  const at::AutoDispatchBelowADInplaceOrView below;
  const std::int64_t n = x.size(0), c = x.size(1);
  auto [y, mean, deviation] =
      at::native_group_norm(x.contiguous(), detached(w), detached(b), n, c, x.numel() / (n * c), groups, stack[4].toDouble());
  node->mean = mean;
  node->deviation = deviation;
  return finish(stack, y, node);
}

namespace {

class BatchNormNode final : public NormNode {
 public:
  BatchNormNode(const WeightRule& rule, const Tensor& input, std::optional<Tensor> weight, bool training, double epsilon)
      : NormNode(rule, input, 1, 2), weight_(std::move(weight)), training_(training), epsilon_(epsilon) {}
  std::optional<Tensor> runningMean, runningVariance;
  Tensor mean, deviation;

 private:
  Gradients run(const Tensor& gradient, const Tensor& input, std::array<bool, 3> mask) const override {
    return at::native_batch_norm_backward(gradient, input, weight_, runningMean, runningVariance, mean, deviation, training_, epsilon_,
                                          mask);
  }
  std::optional<Tensor> weight_;
  bool training_;
  double epsilon_;
};

}  // namespace

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

namespace {

/// y = x + w or x · w with w broadcast.
class ElementwiseNode final : public RuleNode {
 public:
  ElementwiseNode(const WeightRule& rule, const Tensor& input, Tensor factor, std::size_t weightAt)
      : RuleNode(rule, input, factor.defined()), sizes_(input.sizes().vec()), factor_(std::move(factor)), weightAt_(weightAt) {}
  Tensor input(const Tensor& gradient, const Tensor& /*input*/) const override {
    return at::sum_to(factor_.defined() ? gradient * factor_ : gradient, sizes_);
  }
  void weights(const Tensor& gradient, const Tensor& input) const override {
    sumOf(weightAt_).addSum(factor_.defined() ? gradient * input : gradient);
  }

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

}  // namespace

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

}  // namespace pw::weights
