#include "tests/support/tensors.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/custom_function.h>

#include <stdexcept>

#include "backends/torch/backend.h"

namespace pw::test {
namespace {

at::Tensor& in(const Tensor& tensor) { return *static_cast<at::Tensor*>(tensor.handle.get()); }
Tensor of(at::Tensor tensor) { return {std::make_shared<at::Tensor>(std::move(tensor))}; }

struct Broken : torch::autograd::Function<Broken> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& a) { return a.clone(); }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*, const torch::autograd::variable_list&) {
    throw std::domain_error("this backward is broken");
  }
};

/// The same on every machine and thread.
at::Tensor random(std::uint64_t seed) {
  std::vector<double> values;
  std::uint64_t state = seed * 6364136223846793005ULL + 1442695040888963407ULL;
  for (int i = 0; i < 9; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    values.push_back(static_cast<double>(state >> 33U) / static_cast<double>(1U << 30U) - 1);
  }
  return at::tensor(values, at::kDouble).view({3, 3}).clone();
}

}  // namespace

Tensor leaf(std::uint64_t seed) { return of(random(seed).requires_grad_()); }
Tensor constant(std::uint64_t seed) { return of(random(seed)); }
Tensor integers() { return of(at::arange(3)); }
Tensor operator+(const Tensor& a, const Tensor& b) { return of(in(a) + in(b)); }
Tensor operator*(const Tensor& a, const Tensor& b) { return of(in(a)*in(b)); }
Tensor matmul(const Tensor& a, const Tensor& b) { return of(in(a).matmul(in(b))); }
Tensor tanh(const Tensor& a) { return of(in(a).tanh()); }
Tensor scaled(const Tensor& a, double factor) { return of(in(a)*factor); }
Tensor transposed(const Tensor& a) { return of(in(a).t()); }
Tensor sum(const Tensor& a) { return of(in(a).sum()); }
Tensor onlyFirstOf(const Tensor& a, const Tensor& b) { return of(in(a) + 0 * in(b).detach()); }
Tensor brokenBackward(const Tensor& a) { return of(Broken::apply(in(a))); }

const AutogradFunctions& testFunctions() { return torchBackend().autograd(); }

double item(const Tensor& a) { return in(a).item<double>(); }
std::vector<double> numbers(const TensorHandle& a) {
  if (a == nullptr) return {};
  const at::Tensor flat = static_cast<at::Tensor*>(a.get())->detach().to(at::kDouble).contiguous();
  return {flat.data_ptr<double>(), flat.data_ptr<double>() + flat.numel()};
}
bool needsGradient(const Tensor& a) { return in(a).requires_grad(); }
bool hasGradFn(const Tensor& a) { return in(a).grad_fn() != nullptr; }
void localBackward(const std::vector<Tensor>& roots) {
  torch::autograd::variable_list all;
  for (const Tensor& root : roots) all.push_back(in(root));
  torch::autograd::backward(all, {});
}
std::vector<double> gradOf(const Tensor& a) {
  return in(a).grad().defined() ? numbers(std::make_shared<at::Tensor>(in(a).grad())) : std::vector<double>();
}

}  // namespace pw::test
