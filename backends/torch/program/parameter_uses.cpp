#include "backends/torch/program/parameter_uses.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "backends/torch/program/symbolic_numbers.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/weight_part.h"

namespace pw {

ParameterUses::ParameterUses(const ModelGraph& graph, const ProgramOptions& options)
    : graph_(graph), options_(options), gradients_(options.gradients) {
  gradients_.resize(graph.values.size());
  for (const ParameterGradient& gradient : gradients_) parameters_.push_back(gradient.sum != nullptr);
}

void ParameterUses::separate(ProgramStep& step) {
  const Node& node = *step.node;
  std::vector<ParameterGradient> gradients(step.constants.size());
  bool any = false;
  for (const Slot& slot : step.slots) {
    if (slot.kind != Slot::Kind::Tensor || !slot.values.front() || !parameters_[slot.values.front()->index()]) continue;
    gradients[slot.position] = gradients_[slot.values.front()->index()];
    any = true;
  }
  if (!any) return;
  if (isView(node) && node.outputs.size() == 1 && !node.outputIsList) return followView(step);
  const WeightPart part = weightPartOf(graph_, node, parameters_, options_.differentiable);
  step.rule = weightRule(part, step.id, options_.weights, std::move(gradients));
}

void ParameterUses::followView(const ProgramStep& step) {
  const ValueId from = readsOf(*step.node).front();
  const ParameterGradient& gradient = gradients_[from.index()];
  if (!gradient.sum || !options_.differentiable[step.node->outputs.front().index()]) return;  // or it is detached
  Frame frame(graph_.values.size());
  frame[from.index()] = *gradient.sum;
  Stack stack = step.constants;
  try {
    const c10::AutoGradMode off(false);
    const std::vector<std::int64_t> unknown(graph_.values.size(), kUnknownNumber);
    fillSlots(step.slots, stack, frame, Numbers(unknown));
    step.op->callBoxed(stack);
    const at::Tensor view = stack.at(0).toTensor();
    // Each element once, with its own type: windows overlap, and the real part of a complex one is half of it.
    const bool isWhole = view.numel() == gradient.sum->numel() && view.scalar_type() == gradient.sum->scalar_type() &&
                         view.storage_offset() == gradient.sum->storage_offset() && view.is_non_overlapping_and_dense();
    if (view.is_alias_of(*gradient.sum) && isWhole) {
      const std::size_t output = step.node->outputs.front().index();
      gradients_[output] = {std::make_shared<at::Tensor>(view), gradient.fresh};
      parameters_[output] = true;
      views_.insert(step.node);
    }
  } catch (const std::exception&) {
    // Not a view that depends on the parameter alone: autograd follows it.
  }
}

void ParameterUses::noteAutograd(const Node& node) {
  if (views_.contains(&node)) return;
  for (const ValueId value : readsOf(node)) {
    if (parameters_[value.index()]) addedByAutograd_.push_back(viewedBase(graph_, value));
  }
}

void ParameterUses::noteKept() {
  for (const ValueId value : options_.keep) {
    if (parameters_[value.index()]) addedByAutograd_.push_back(viewedBase(graph_, value));
  }
}

}  // namespace pw
