#include "backends/torch/program/weights.h"

#include <ATen/ATen.h>

#include <algorithm>

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

WeightRule weightRule(const std::string& operatorName, NodeId node, const WeightQueue* queue, std::vector<ParameterGradient> gradients,
                      const std::vector<bool>& differentiable) {
  const weights::RuleEntry* entry = nullptr;
  for (const auto* rules : {&weights::productRules(), &weights::otherRules()}) {
    for (const weights::RuleEntry& rule : *rules) {
      if (operatorName == rule.name) entry = &rule;
    }
  }
  if (entry == nullptr) return {};
  const auto isWeight = [&](std::size_t i) { return std::find(entry->weights.begin(), entry->weights.end(), i) != entry->weights.end(); };
  std::size_t trained = 0, others = 0;
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (gradients[i].sum && !isWeight(i)) return {};
    trained += gradients[i].sum ? 1 : 0;
    others += !gradients[i].sum && differentiable[i] ? 1 : 0;
  }
  const bool symmetric = entry->weights == std::vector<std::size_t>{0, 1};
  // Beside the parameters one input may need a gradient, and it must be where the rule expects it.
  bool fit = trained > 0 && others <= 1 && (!symmetric || trained == 1);
  for (std::size_t i = 0; i < gradients.size() && !symmetric; ++i) fit = fit && !(isWeight(i) && differentiable[i] && !gradients[i].sum);
  if (!fit) return {};
  return {node, queue, std::move(gradients), entry->apply};
}

}  // namespace pw
