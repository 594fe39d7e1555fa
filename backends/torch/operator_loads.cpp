#include "backends/torch/operator_loads.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace pw {
namespace {

constexpr Bytes kLeast = 16 * 1024;  // of all that one operator loads

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
  resident_ = std::max(resident_, code_.resident());
}

void OperatorLoads::ranForward(std::size_t node) { note(node, node); }

void OperatorLoads::ranBackward(std::size_t node) { note(node, finished_); }

std::string_view OperatorLoads::operatorOf(std::size_t node) const {
  return node == graph_.nodes.size() ? std::string_view("loss") : std::string_view(graph_.nodes[node].target);
}

void OperatorLoads::note(std::size_t node, std::size_t neededBy) {
  const Bytes now = code_.resident(), before = std::exchange(resident_, std::max(resident_, now));
  if (now <= before) return;  // what the system took away and brings back is no new load
  const auto same = [&](const Load& load) { return load.neededBy == neededBy && operatorOf(load.node) == operatorOf(node); };
  const auto found = std::ranges::find_if(loads_, same);
  if (found == loads_.end()) {
    loads_.push_back({node, neededBy, now - before});
  } else {
    found->bytes += now - before;
  }
}

std::vector<OperatorLoad> OperatorLoads::loads(Bytes atMost) const {
  std::vector<OperatorLoad> found;
  for (const Load& load : loads_) {
    if (load.bytes < kLeast) continue;
    OperatorLoad& one = found.emplace_back(std::string(operatorOf(load.node)), load.bytes);
    if (load.node == graph_.nodes.size()) continue;
    for (std::size_t n = load.neededBy; n < graph_.nodes.size(); ++n) {
      if (graph_.nodes[n].target == one.name) one.nodes.emplace_back(n);
    }
    if (one.nodes.empty()) one.nodes.emplace_back(load.node);  // an empty list would mean the loss
  }
  std::ranges::stable_sort(found, std::greater{}, &OperatorLoad::bytes);
  std::erase_if(found, [&](const OperatorLoad& load) { return load.bytes > atMost || (atMost -= load.bytes, false); });
  return found;
}

}  // namespace pw
