#include "backends/torch/stage/optimizer.h"

#include <ATen/ScalarOps.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "backends/torch/program/types.h"
#include "schedules/error.h"

namespace pw {

struct Optimizer::Impl {
  OptimizerSpec spec;
  int before = 0;                                         // updates, of a resumed training
  std::map<std::size_t, std::vector<at::Tensor>> states;  // as many as `stateNames` has
  std::map<std::size_t, int> updates;                     // since then
};

namespace {

/// Which update of how many steps this is, both from 0.
struct Count {
  int step = 0;
  int update = 0;
};

/// What to divide the gradients by where that is the exact quotient: the inverse of the scale, if it is an integer.
std::optional<double> divisorOf(double gradientScale) {
  const double divisor = std::round(1 / gradientScale);
  return divisor >= 1 && divisor <= 1 << 24 && 1 / divisor == gradientScale ? std::optional(divisor) : std::nullopt;
}

/// `tensor *= factor` as Python does it: `mul_` with a C++ number rounds a factor for 16-bit tensors to 16 bits first.
at::Tensor& multiply(at::Tensor& tensor, double factor) { return tensor.mul_(at::native::wrapped_scalar_tensor(factor)); }

/// The kernels divide by a float tensor on the way; other factors get a pass of their own.
std::optional<at::Tensor> fusedDivisor(at::Tensor& gradients, double gradientScale) {
  if (gradientScale == 1) return std::nullopt;
  if (const auto divisor = divisorOf(gradientScale))
    return at::scalar_tensor(*divisor, at::TensorOptions().dtype(at::kFloat).device(gradients.device()));
  multiply(gradients, gradientScale);
  return std::nullopt;
}

using NamedStates = std::vector<std::pair<std::string, at::Tensor>>;

/// The operators of torch.optim's plain loops (`_single_tensor_sgd` and its like), in their order, on a piece.
void plainSgd(const OptimizerSpec& spec, at::Tensor& values, at::Tensor gradient, std::vector<at::Tensor>& state, double rate) {
  if (!state.empty()) {
    multiply(state[0], spec.momentum).add_(gradient);
    gradient = spec.nesterov ? gradient.add(state[0], spec.momentum) : state[0];
  }
  values.add_(gradient, -rate);
}

void plainAdam(const OptimizerSpec& spec, at::Tensor& values, const at::Tensor& gradient, std::vector<at::Tensor>& state, double rate,
               int update) {
  state[0].lerp_(gradient, 1 - spec.beta1);
  multiply(state[1], spec.beta2).addcmul_(gradient, gradient, 1 - spec.beta2);
  const double first = 1 - std::pow(spec.beta1, update + 1), second = 1 - std::pow(spec.beta2, update + 1);
  values.addcdiv_(state[0], (state[1].sqrt() / std::sqrt(second)).add_(spec.epsilon), -rate / first);
}

void plainRmsProp(const OptimizerSpec& spec, at::Tensor& values, const at::Tensor& gradient, std::vector<at::Tensor>& state, double rate) {
  multiply(state[0], spec.alpha).addcmul_(gradient, gradient, 1 - spec.alpha);
  const at::Tensor mean = state[0].sqrt().add_(spec.epsilon);
  if (state.size() == 1) {
    values.addcdiv_(gradient, mean, -rate);
    return;
  }
  multiply(state[1], spec.momentum).addcdiv_(gradient, mean);
  values.add_(state[1], -rate);
}

void plainPiece(const OptimizerSpec& spec, at::Tensor values, const at::Tensor& gradients, std::vector<at::Tensor>& state, Count count) {
  const double rate = learningRateAt(spec, count.step);
  const bool shrinks = spec.kind == OptimizerSpec::Kind::AdamW;
  if (shrinks) multiply(values, 1 - rate * spec.weightDecay);
  const at::Tensor gradient = spec.weightDecay != 0 && !shrinks ? gradients.add(values, spec.weightDecay) : gradients;
  switch (spec.kind) {
    case OptimizerSpec::Kind::Sgd: plainSgd(spec, values, gradient, state, rate); return;
    case OptimizerSpec::Kind::Adam:
    case OptimizerSpec::Kind::AdamW: plainAdam(spec, values, gradient, state, rate, count.update); return;
    case OptimizerSpec::Kind::RmsProp: plainRmsProp(spec, values, gradient, state, rate); return;
  }
}

void plainStep(const OptimizerSpec& spec, at::Tensor& values, at::Tensor& gradients, const NamedStates& state, Count count,
               double gradientScale) {
  if (gradientScale != 1) {
    const auto divisor = divisorOf(gradientScale);
    divisor ? gradients.div_(*divisor) : multiply(gradients, gradientScale);
  }
  const std::int64_t most = values.is_cpu() ? 1 << 16 : 1 << 24;  // temporaries stay in the cache, or small; a GPU gets few kernels
  for (std::int64_t begin = 0; begin < values.numel(); begin += most) {
    const std::int64_t size = std::min(most, values.numel() - begin);
    std::vector<at::Tensor> pieces;
    for (const auto& [name, tensor] : state) pieces.push_back(tensor.narrow(0, begin, size));
    plainPiece(spec, values.narrow(0, begin, size), gradients.narrow(0, begin, size), pieces, count);
  }
}

void fusedStep(const OptimizerSpec& spec, at::Tensor& values, at::Tensor& gradients, const NamedStates& state, Count count,
               double gradientScale) {
  if (spec.kind == OptimizerSpec::Kind::RmsProp)
    return plainStep(spec, values, gradients, state, count, gradientScale);  // torch has no fused kernel
  const double rate = learningRateAt(spec, count.step);
  const std::optional<at::Tensor> divisor = fusedDivisor(gradients, gradientScale);
  const auto adam = [&](auto kernel) {
    // Counted from 1, in float32 as torch.optim has it.
    const at::Tensor number = at::full({}, count.update + 1.0, at::TensorOptions().dtype(at::kFloat).device(values.device()));
    kernel(at::TensorList(values), at::TensorList(gradients), at::TensorList(state[0].second), at::TensorList(state[1].second),
           at::TensorList(), at::TensorList(number), rate, spec.beta1, spec.beta2, spec.weightDecay, spec.epsilon, false, false, divisor,
           std::nullopt);
  };
  switch (spec.kind) {
    case OptimizerSpec::Kind::Sgd: {
      // A buffer of zeros gives the first step's buffer, the gradient, without telling the kernel that it is the first.
      const at::TensorList buffers = state.empty() ? at::TensorList() : at::TensorList(state[0].second);
      at::_fused_sgd_(values, gradients, buffers, spec.weightDecay, spec.momentum, rate, 0.0, spec.nesterov, false, false, divisor,
                      std::nullopt);
      return;
    }
    case OptimizerSpec::Kind::Adam: adam([](auto&&... arguments) { at::_fused_adam_(arguments...); }); return;
    case OptimizerSpec::Kind::AdamW: adam([](auto&&... arguments) { at::_fused_adamw_(arguments...); }); return;
    case OptimizerSpec::Kind::RmsProp: return;  // above
  }
}

}  // namespace

Optimizer::Optimizer(const OptimizerSpec& spec, int updates) : impl_(std::make_unique<Impl>()) {
  if (spec.nesterov && spec.momentum <= 0) throw UsageError("Nesterov's update needs a momentum above 0; give one, or leave nesterov out.");
  impl_->spec = spec;
  impl_->before = updates;
}

Optimizer::~Optimizer() = default;

void Optimizer::change(const OptimizerSpec& spec) {
  if (spec.kind != impl_->spec.kind || stateNames(spec) != stateNames(impl_->spec)) {
    throw UsageError(
        "The optimizer became another while it trains, with other state; change only its numbers, and a momentum not to or from 0.");
  }
  impl_->spec = spec;
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::state(std::size_t key, const at::Tensor& values) {
  if (!at::isFloatingType(values.scalar_type())) {
    throw UsageError("The optimizers update floating point parameters, not " + std::string(nameOf(dtypeOf(values.scalar_type()))) +
                     "; freeze such parameters before the export.");
  }
  std::vector<at::Tensor>& tensors = impl_->states[key];
  std::vector<std::pair<std::string, at::Tensor>> named;
  for (const std::string& stateName : stateNames(impl_->spec)) {
    if (tensors.size() == named.size()) tensors.push_back(at::zeros_like(values, at::TensorOptions().requires_grad(false)));
    named.emplace_back(stateName, tensors[named.size()]);
  }
  return named;
}

void Optimizer::forget(std::size_t key) { impl_->states.erase(key); }

void Optimizer::step(std::size_t key, at::Tensor& values, at::Tensor& gradients, int step, double gradientScale,
                     const std::vector<OptimizerPiece>& pieces) {
  const c10::AutoGradMode off(false);
  const auto state = this->state(key, values);
  if (values.numel() == 0) return;
  const Count count{step, impl_->before + impl_->updates[key]++};
  // The wheel's fused kernels are wrong for 16-bit numbers: SGD's leaves most parameters as they were.
  const auto update = values.element_size() == 2 ? &plainStep : &fusedStep;
  if (impl_->spec.groups.empty()) return update(impl_->spec, values, gradients, state, count, gradientScale);
  std::int64_t first = 0;
  for (const OptimizerPiece& piece : pieces) {
    if (piece.last == first) continue;
    const auto part = [&](const at::Tensor& tensor) { return tensor.narrow(0, first, piece.last - first); };
    at::Tensor ownValues = part(values), ownGradients = part(gradients);
    NamedStates ownState;
    for (const auto& [name, tensor] : state) ownState.emplace_back(name, part(tensor));
    update(ofGroup(impl_->spec, piece.group), ownValues, ownGradients, ownState, count, gradientScale);
    first = piece.last;
  }
}

}  // namespace pw
