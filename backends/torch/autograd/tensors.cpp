#include "backends/torch/autograd/tensors.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <map>
#include <string>
#include <utility>

#include "backends/torch/autograd/local_pass.h"
#include "backends/torch/autograd/nodes.h"
#include "backends/torch/program/types.h"
#include "backends/torch/stage/optimizer.h"
#include "schedules/error.h"

namespace pw {
namespace {

LocalPass& passIn(const LocalPassHandle& handle) { return *static_cast<LocalPass*>(handle.get()); }

bool needsGradient(const TensorHandle& tensor) { return c10::GradMode::is_enabled() && tensorIn(tensor).requires_grad(); }

TensorImage imageOf(const TensorHandle& handle) {
  const at::Tensor& tensor = tensorIn(handle);
  if (tensor.layout() != at::kStrided || tensor.is_quantized())
    throw UsageError("A tensor of a remote call is sparse or quantized; convert it to a dense one first.");
  TensorImage image;
  image.dtype = dtypeOf(tensor.scalar_type());
  if (image.dtype == DType::Unknown)
    throw UsageError("A tensor of a remote call has the type " + std::string(c10::toString(tensor.scalar_type())) +
                     ", which cannot be sent.");
  image.shape = tensor.sizes().vec();
  image.onGpu = tensor.is_cuda();
  auto host = std::make_shared<at::Tensor>(onHost(tensor.detach()).contiguous().resolve_conj().resolve_neg());
  image.memory = {bufferOf(*host), host};
  return image;
}

TensorHandle tensorOf(const TensorImage& image) {
  const at::ScalarType type = scalarType(image.dtype);
  Bytes elements = 1;
  for (const std::int64_t size : image.shape) {
    if (size < 0 || (size > 0 && elements > INT64_MAX / 16 / size)) throw Error("A tensor of a remote call has an impossible shape.");
    elements *= size;
  }
  const auto bytes = static_cast<std::size_t>(elements) * c10::elementSize(type);
  if (bytes != image.memory.buffer.bytes) {
    throw Error("A tensor of a remote call has " + std::to_string(image.memory.buffer.bytes) + " bytes where its shape needs " +
                std::to_string(bytes) + ".");
  }
  if (bytes == 0) return handleOf(at::empty(image.shape, type));
  const std::shared_ptr<void> owner = image.memory.owner;
  const at::Tensor host = at::from_blob(
      image.memory.buffer.data, image.shape, [owner](void*) {}, at::TensorOptions().dtype(type));
  return handleOf(image.onGpu && at::hasCUDA() ? host.to(at::Device(at::kCUDA)) : host);
}

const void* identityOf(const TensorHandle& tensor) { return tensorIn(tensor).unsafeGetTensorImpl(); }

/// A gradient as the engine's optimizers and messages take it: embeddings may give sparse ones.
at::Tensor dense(const at::Tensor& gradient) { return gradient.layout() == at::kStrided ? gradient : gradient.to_dense(); }

TensorHandle sumOf(const TensorHandle& one, const TensorHandle& other) {
  const c10::AutoGradMode off(false);
  const at::Tensor &first = tensorIn(one), &second = tensorIn(other);
  return handleOf(first.layout() == second.layout() ? first + second : dense(first) + dense(second));
}

Bytes bytesOf(const TensorHandle& tensor) {
  return tensor == nullptr ? 0 : tensorIn(tensor).numel() * static_cast<Bytes>(tensorIn(tensor).itemsize());
}

LocalPassHandle makePass(const std::vector<TensorHandle>& roots, bool keepGraph) { return std::make_shared<LocalPass>(roots, keepGraph); }

std::vector<AutogradMessageId> reach(const LocalPassHandle& pass, const std::vector<NodeHandle>& sends, bool fromRoots) {
  return passIn(pass).reach(sends, fromRoots);
}
void expect(const LocalPassHandle& pass, const std::vector<NodeHandle>& sends) { passIn(pass).expect(sends); }
void run(const LocalPassHandle& pass, const NodeHandle& send, const std::vector<TensorHandle>& gradients, const GradientSink& sink) {
  passIn(pass).run(send, gradients, sink);
}
bool waits(const LocalPassHandle& pass) { return passIn(pass).waits(); }
bool waitsFor(const LocalPassHandle& pass, const NodeHandle& send) { return passIn(pass).waitsFor(send); }

/// Steps are counted for each parameter, as torch.optim does: a parameter without a gradient is left alone.
struct CountingOptimizer {
  explicit CountingOptimizer(const OptimizerSpec& spec) : optimizer(spec) {}
  Optimizer optimizer;
  std::map<std::size_t, int> steps;
};

OptimizerHandle makeOptimizer(const OptimizerSpec& spec) { return std::make_shared<CountingOptimizer>(spec); }

void stepOptimizer(const OptimizerHandle& handle, std::size_t key, const TensorHandle& parameter, const TensorHandle& gradient) {
  auto& counting = *static_cast<CountingOptimizer*>(handle.get());
  const c10::AutoGradMode off(false);
  at::Tensor target = tensorIn(parameter).detach();
  at::Tensor values = target.contiguous().view({-1});
  at::Tensor flat = dense(tensorIn(gradient).detach()).contiguous().view({-1});
  counting.optimizer.step(key, values, flat, counting.steps[key]++, 1);
  if (!target.is_contiguous()) target.copy_(values.view(target.sizes()));
}

}  // namespace

const AutogradFunctions& autogradFunctions() {
  static const AutogradFunctions functions{&needsGradient, &imageOf,       &tensorOf,      &identityOf,   &sumOf,  &bytesOf,
                                           &attachSend,    &attachReceive, &makePass,      &reach,        &expect, &run,
                                           &waits,         &waitsFor,      &makeOptimizer, &stepOptimizer};
  return functions;
}

}  // namespace pw
