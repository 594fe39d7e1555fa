#include "backends/torch/stage/synthetic.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <set>
#include <string>

#include "backends/torch/program/types.h"
#include "simulator/model/loss_form.h"

namespace pw {
namespace {

bool isIndex(const Value& value) { return value.tensor && !isDifferentiable(value.tensor->dtype) && value.tensor->dtype != DType::Bool; }

/// Number of valid indices if `node` selects with `value`: rows of an embedding, classes of a loss; else 0.
std::int64_t selectionRange(const ModelGraph& graph, const Node& node, ValueId value) {
  const auto sizesOf = [&](const std::string& argument) -> std::vector<SymbolicInt> {
    for (const NamedArgument& a : node.inputs) {
      const auto* id = std::get_if<ValueId>(&a.value);
      if (a.name == argument && id != nullptr && graph.value(*id).tensor) return graph.value(*id).tensor->sizes;
    }
    return {};
  };
  const auto passedAs = [&](const std::string& argument) {
    return std::any_of(node.inputs.begin(), node.inputs.end(), [&](const NamedArgument& a) {
      const auto* id = std::get_if<ValueId>(&a.value);
      return a.name == argument && id != nullptr && *id == value;
    });
  };
  if (node.target.rfind("torch.ops.aten.embedding", 0) == 0 && passedAs("indices")) {
    const auto sizes = sizesOf("weight");
    return sizes.empty() ? 0 : sizes.front().hint;
  }
  if ((node.target.rfind("torch.ops.aten.cross_entropy_loss", 0) == 0 || node.target.rfind("torch.ops.aten.nll_loss", 0) == 0) &&
      passedAs("target")) {
    const auto sizes = sizesOf("self");
    return sizes.empty() ? 0 : sizes[sizes.size() > 1 ? 1 : 0].hint;
  }
  return 0;
}

}  // namespace

std::int64_t indexRange(const ModelGraph& graph, ValueId input) {
  if (!isIndex(graph.value(input))) return 0;
  std::set<ValueId> carriers{input};
  for (const Node& node : graph.nodes) {
    for (const ValueId read : readsOf(node)) {
      if (!carriers.contains(read)) continue;
      if (const std::int64_t range = selectionRange(graph, node, read); range > 0) return range;
      for (const ValueId output : node.outputs) {
        if (isIndex(graph.value(output))) carriers.insert(output);
      }
      break;
    }
  }
  return 0;
}

at::Tensor syntheticTensor(DType dtype, const std::vector<std::int64_t>& shape, std::int64_t range, std::uint64_t seed) {
  const at::Generator generator = at::detail::createCPUGenerator(seed);
  const auto options = at::TensorOptions().dtype(scalarType(dtype));
  if (isDifferentiable(dtype)) return at::randn(shape, generator, at::TensorOptions().dtype(at::kFloat)).to(scalarType(dtype));
  return range > 0 ? at::randint(range, shape, generator, options) : at::ones(shape, options);
}

std::optional<std::int64_t> ignoredTarget(const ModelGraph& graph, ValueId input) {
  if (!isIndex(graph.value(input))) return std::nullopt;
  std::set<ValueId> carriers{input};
  for (const Node& node : graph.nodes) {
    for (const ValueId read : readsOf(node)) {
      if (!carriers.contains(read)) continue;
      if (node.target.starts_with("torch.ops.aten.embedding")) return std::nullopt;  // it looks something up, too
      for (const ValueId output : node.outputs) {
        if (isIndex(graph.value(output))) carriers.insert(output);
      }
    }
  }
  for (const OwnLoss& loss : ownLosses(graph)) {
    if (loss.form == LossForm::TargetMean && loss.counted && carriers.contains(*loss.counted)) return loss.ignored;
  }
  return std::nullopt;
}

void ignoreSome(at::Tensor& targets, std::int64_t dimension, std::int64_t samples, std::int64_t ignored) {
  for (std::int64_t s = 0; s < samples; ++s) {
    const std::int64_t rows = targets.size(dimension) / samples;
    at::Tensor sample = targets.narrow(dimension, s * rows, rows);
    const at::Tensor flat = sample.flatten().clone();
    const std::int64_t count = flat.numel() * (s + 1) / (2 * samples);
    if (count > 0) flat.narrow(0, flat.numel() - count, count).fill_(ignored);
    sample.copy_(flat.view(sample.sizes()));
  }
}

}  // namespace pw
