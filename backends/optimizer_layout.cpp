#include "backends/optimizer_layout.h"

#include <map>

#include "backends/pickle_write.h"

namespace pw {
namespace {

using namespace pickle;

void putNamed(std::string& out, std::string_view name, double number) {
  putText(out, name);
  putReal(out, number);
  out += 's';
}

void putNamed(std::string& out, std::string_view name, bool truth) {
  putText(out, name);
  putBool(out, truth);
  out += 's';
}

void putNamedNone(std::string& out, std::string_view name) {
  putText(out, name);
  putNone(out);
  out += 's';
}

/// The one group, with the members that torch.optim of torch 2.11 gives it.
void putGroup(std::string& out, const OptimizerLayout& layout) {
  const OptimizerSpec& spec = layout.spec;
  const bool isAdam = spec.kind != OptimizerSpec::Kind::Sgd;
  out += '}';
  putNamed(out, "lr", learningRateAt(spec, layout.steps));
  putNamed(out, "initial_lr", spec.learningRate);  // what schedulers of torch.optim go on from
  putNamed(out, "weight_decay", spec.weightDecay);
  if (isAdam) {
    putText(out, "betas");
    putReal(out, spec.beta1);
    putReal(out, spec.beta2);
    out += "\x86s";
    putNamed(out, "eps", spec.epsilon);
    putNamed(out, "amsgrad", false);
    putNamed(out, "capturable", false);
    putNamed(out, "decoupled_weight_decay", spec.kind == OptimizerSpec::Kind::AdamW);
  } else {
    putNamed(out, "momentum", spec.momentum);
    putNamed(out, "dampening", 0.0);
    putNamed(out, "nesterov", spec.nesterov);
  }
  putNamed(out, "maximize", false);
  putNamedNone(out, "foreach");
  putNamed(out, "differentiable", false);
  putNamedNone(out, "fused");
  putText(out, "params");
  out += "](";
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) putInteger(out, static_cast<std::int64_t>(i));
  out += "es";
}

}  // namespace

OptimizerState stateOf(const OptimizerSpec& spec) {
  switch (spec.kind) {
    case OptimizerSpec::Kind::Sgd: break;
    case OptimizerSpec::Kind::Adam: return OptimizerState::Adam;
    case OptimizerSpec::Kind::AdamW: return OptimizerState::AdamW;
  }
  return spec.momentum != 0 ? OptimizerState::Momentum : OptimizerState::Sgd;
}

std::string_view nameOf(OptimizerState state) {
  switch (state) {
    case OptimizerState::Sgd: break;
    case OptimizerState::Momentum: return "sgd with momentum";
    case OptimizerState::Adam: return "adam";
    case OptimizerState::AdamW: return "adamw";
  }
  return "sgd";
}

std::string optimizerPickle(const OptimizerLayout& layout, const std::vector<TensorEntry>& tensors, const std::vector<TensorEntry>& steps) {
  std::map<std::string, std::vector<const TensorEntry*>> states;  // by parameter
  for (const TensorEntry& tensor : tensors) states[tensor.name.substr(tensor.name.find('/') + 1)].push_back(&tensor);
  std::string out("}");
  putText(out, "state");
  out += '}';
  for (std::size_t i = 0; i < layout.parameters.size(); ++i) {
    const auto found = states.find(layout.parameters[i]);
    if (found == states.end()) continue;
    putInteger(out, static_cast<std::int64_t>(i));
    out += '}';
    if (i < steps.size()) {
      putText(out, "step");
      putTensor(out, steps[i]);
      out += 's';
    }
    for (const TensorEntry* tensor : found->second) {
      putText(out, tensor->name.substr(0, tensor->name.find('/')));
      putTensor(out, *tensor);
      out += 's';
    }
    out += 's';
  }
  out += 's';
  putText(out, "param_groups");
  out += ']';
  putGroup(out, layout);
  out += "as";
  return out;
}

}  // namespace pw
