#pragma once

#include <ATen/ATen.h>
#include <ATen/ExpandUtils.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backends/torch/program/weights.h"

/// Building blocks of the rules of weights.h.
namespace pw::weights {

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
    takeFresh() ? sum.copy_(gradient.sizes() == sum.sizes() ? gradient : gradient.reshape(sum.sizes()))
                : sum.add_(gradient.reshape(sum.sizes()));
  }
  void addSum(const Tensor& gradient) const { add(at::sum_to(gradient, gradient_.sum->sizes())); }
  /// [n, k] += a [n, r] · b [r, k]
  void addProduct(const Tensor& a, const Tensor& b) const {
    Tensor& sum = *gradient_.sum;
    if (a.scalar_type() != sum.scalar_type()) return add(a.mm(b));
    takeFresh() ? at::mm_out(sum, a, b) : sum.addmm_(a, b);
  }
  void addBatchedProduct(const Tensor& a, const Tensor& b) const {
    Tensor& sum = *gradient_.sum;
    if (a.scalar_type() != sum.scalar_type()) return add(a.bmm(b));
    takeFresh() ? at::bmm_out(sum, a, b) : sum.baddbmm_(a, b);
  }
  void addRows(const Tensor& indices, const Tensor& rows) const {
    if (takeFresh()) gradient_.sum->zero_();
    const Tensor added = rows.to(gradient_.sum->scalar_type());
    // On a GPU index_add_ adds in arbitrary order, this one in a fixed order: the same bits in every run.
    if (gradient_.sum->is_cuda())
      gradient_.sum->index_put_({indices}, added, /*accumulate=*/true);
    else
      gradient_.sum->index_add_(0, indices, added);
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
  /// Both gradients at once, if that is cheaper.
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
    const auto self = std::static_pointer_cast<RuleNode>(shared_from_this());
    const Tensor plain = input.defined() ? input.detach() : input;  // without the history, which keeps values received
    deferred.push_back({rule_.node, [self, gradient, plain] { self->weights(gradient, plain); }, [self] { self->set_next_edges({}); }});
  }

  const WeightRule& rule_;  // of the program, which outlives its backward
  SavedVariable saved_;
  bool needsInput_;
};

inline const Tensor& tensorAt(const Stack& stack, std::size_t i) { return stack[i].toTensor(); }
inline Tensor optionalAt(const Stack& stack, std::size_t i) { return stack[i].isTensor() ? stack[i].toTensor() : Tensor(); }

/// Rules hold for floating tensors of one type.
inline bool fits(const Tensor& input, const Tensor& weight) {
  return input.is_floating_point() && input.scalar_type() == weight.scalar_type();
}

/// The type that autocast computes products in, if it applies to the tensor: it leaves 64-bit types unchanged.
inline std::optional<at::ScalarType> autocastType(const Tensor& t) {
  const auto device = t.device().type();
  if (!at::autocast::is_autocast_enabled(device) || !t.is_floating_point() || t.scalar_type() == at::kDouble) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

/// Puts the result with its backward on the stack.
inline bool finish(Stack& stack, Tensor result, const std::shared_ptr<RuleNode>& node) {
  torch::autograd::set_history(result, node);
  stack.clear();
  stack.emplace_back(std::move(result));
  return true;
}

/// The rules, by the form of an operator's weight part (`WeightPart`), each as `WeightRule::apply`: products and convolutions,
bool applyLinear(const WeightRule& rule, Stack& stack);
bool applyAddmm(const WeightRule& rule, Stack& stack);
bool applyMatmul(const WeightRule& rule, Stack& stack);
bool applyConv(const WeightRule& rule, Stack& stack);
bool applyConvolution(const WeightRule& rule, Stack& stack);
/// embeddings, norms and elementwise operators.
bool applyEmbedding(const WeightRule& rule, Stack& stack);
bool applyLayerNorm(const WeightRule& rule, Stack& stack);
bool applyRmsNorm(const WeightRule& rule, Stack& stack);
bool applyGroupNorm(const WeightRule& rule, Stack& stack);
bool applyBatchNorm(const WeightRule& rule, Stack& stack);
bool applyAdd(const WeightRule& rule, Stack& stack);
bool applyMul(const WeightRule& rule, Stack& stack);

}  // namespace pw::weights
