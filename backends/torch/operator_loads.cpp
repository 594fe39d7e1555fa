#include "backends/torch/operator_loads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace pw {
namespace {

/// Element-wise loops, sums, copies, indices, and autograd's engine, on the host.
void loadWhatMostOperatorsShare() {
  const c10::AutoGradMode gradients(true);
  const at::Tensor x = at::ones({4, 4}).set_requires_grad(true);
  const at::Tensor rows = at::arange(4, at::kLong);
  const at::Tensor y = (x.index_select(0, rows) + x * x).transpose(0, 1).contiguous().view({-1});
  torch::autograd::backward({y.sum()}, {});
}

}  // namespace

OperatorLoads::OperatorLoads(const ModelGraph& graph) : graph_(graph) { loadWhatMostOperatorsShare(); }

void OperatorLoads::begin(std::size_t finished) {
  finished_ = finished;
  resident_ = code_.resident();
}

void OperatorLoads::ranForward(std::size_t node) { note(node, node); }

void OperatorLoads::ranBackward(std::size_t node) { note(node, finished_); }

void OperatorLoads::note(std::size_t node, std::size_t neededBy) {
  const Bytes now = code_.resident();
  const Bytes grown = now - std::exchange(resident_, now);
  if (grown > 0) loads_.push_back({node, neededBy, grown});
}

std::vector<OperatorLoad> OperatorLoads::loads(Bytes atMost) const {
  std::vector<OperatorLoad> found;
  for (const Load& load : loads_) {
    const bool isLoss = load.node == graph_.nodes.size();
    OperatorLoad& one = found.emplace_back(isLoss ? "loss" : graph_.nodes[load.node].target, load.bytes);
    for (std::size_t n = load.neededBy; !isLoss && n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].target == one.name) one.nodes.emplace_back(n);
    }
  }
  std::ranges::stable_sort(found, std::greater{}, &OperatorLoad::bytes);
  std::erase_if(found, [&](const OperatorLoad& load) { return load.bytes > atMost || (atMost -= load.bytes, false); });
  return found;
}

}  // namespace pw
