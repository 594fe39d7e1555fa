#include "backends/torch/autograd/stages.h"

#include <ATen/core/Tensor.h>

#include <utility>

#include "backends/torch/autograd/nodes.h"
#include "backends/torch/stage/history.h"

namespace pw {
namespace {

StageForward forward(StageModule& stage, Microbatch microbatch, const std::map<std::size_t, TensorHandle>& received) {
  std::map<std::size_t, at::Tensor> tensors;
  for (const auto& [transfer, value] : received) tensors[transfer] = tensorIn(value);
  HistoryForward done = forwardWithHistory(stage, microbatch, std::move(tensors));
  StageForward result;
  for (auto& [transfer, value] : done.outputs) {
    const auto bytes = static_cast<Bytes>(value.nbytes());
    result.outputs.push_back({transfer, handleOf(std::move(value)), bytes});
  }
  if (done.loss.defined() && done.loss.requires_grad()) result.loss = handleOf(std::move(done.loss));
  return result;
}

void addGradientsOf(StageModule& stage, Microbatch microbatch, const std::function<TensorHandle(const TensorHandle&)>& gradientOf) {
  addGradients(stage, microbatch, [&](const at::Tensor& parameter) {
    const TensorHandle gradient = gradientOf(handleOf(parameter));
    return gradient == nullptr ? at::Tensor() : tensorIn(gradient);
  });
}

}  // namespace

const StageFunctions& stageFunctions() {
  static const StageFunctions functions{&forward, &addGradientsOf};
  return functions;
}

}  // namespace pw
