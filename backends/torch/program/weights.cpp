#include "backends/torch/program/weights.h"

#include <ATen/ATen.h>

#include "backends/torch/program/weight_rules.h"

namespace pw {

struct LowerWeights::Copy {
  at::Tensor from, lower;
};

LowerWeights::LowerWeights() = default;
LowerWeights::~LowerWeights() = default;

const at::Tensor& LowerWeights::of(const at::Tensor& weight, c10::ScalarType type) {
  const auto [begin, end] = copies_.equal_range(weight.data_ptr());
  for (auto at = begin; at != end; ++at) {  // views of one weight
    const Copy& copy = *at->second;
    if (copy.from.sizes() == weight.sizes() && copy.from.strides() == weight.strides() && copy.lower.scalar_type() == type)
      return copy.lower;
  }
  return copies_.emplace(weight.data_ptr(), std::make_unique<Copy>(Copy{weight, weight.to(type)}))->second->lower;
}

void LowerWeights::refresh() {
  for (const auto& [memory, copy] : copies_) copy->lower.copy_(copy->from);
}

namespace {

using Apply = decltype(WeightRule::apply);

Apply applyOf(WeightPart part) {
  switch (part) {
    case WeightPart::None: return nullptr;
    case WeightPart::Linear: return &weights::applyLinear;
    case WeightPart::AddedProduct: return &weights::applyAddmm;
    case WeightPart::Product: return &weights::applyMatmul;
    case WeightPart::Convolution: return &weights::applyConv;
    case WeightPart::AnyConvolution: return &weights::applyConvolution;
    case WeightPart::Embedding: return &weights::applyEmbedding;
    case WeightPart::LayerNorm: return &weights::applyLayerNorm;
    case WeightPart::RmsNorm: return &weights::applyRmsNorm;
    case WeightPart::GroupNorm: return &weights::applyGroupNorm;
    case WeightPart::BatchNorm: return &weights::applyBatchNorm;
    case WeightPart::Sum: return &weights::applyAdd;
    case WeightPart::Factor: return &weights::applyMul;
  }
  return nullptr;
}

}  // namespace

WeightRule weightRule(WeightPart part, NodeId node, const WeightQueue* queue, std::vector<ParameterGradient> gradients) {
  if (part == WeightPart::None) return {};
  return {node, queue, std::move(gradients), applyOf(part)};
}

}  // namespace pw
