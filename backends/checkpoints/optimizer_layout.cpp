#include "backends/checkpoints/optimizer_layout.h"

#include <algorithm>
#include <map>
#include <set>

#include "backends/checkpoints/pickle_write.h"

namespace pw {
namespace {

using namespace pickle;

std::string real(double number) {
  std::string out;
  putReal(out, number);
  return out;
}

std::string truth(bool isTrue) {
  std::string out;
  putBool(out, isTrue);
  return out;
}

std::vector<std::pair<std::string, std::string>> membersOf(const OptimizerSpec& spec, int steps) {
  const std::string none = "N";
  std::vector<std::pair<std::string, std::string>> group{
      {"lr", real(learningRateAt(spec, steps))},
      {"initial_lr", real(spec.learningRate)},  // what schedulers of torch.optim resume from
      {"weight_decay", real(spec.weightDecay)}};
  switch (spec.kind) {
    case OptimizerSpec::Kind::Sgd:
      group.insert(group.end(),
                   {{"momentum", real(spec.momentum)}, {"dampening", real(0)}, {"nesterov", truth(spec.nesterov)}, {"fused", none}});
      break;
    case OptimizerSpec::Kind::Adam:
    case OptimizerSpec::Kind::AdamW:
      group.insert(group.end(), {{"betas", real(spec.beta1) + real(spec.beta2) + "\x86"},
                                 {"eps", real(spec.epsilon)},
                                 {"amsgrad", truth(false)},
                                 {"capturable", truth(false)},
                                 {"decoupled_weight_decay", truth(spec.kind == OptimizerSpec::Kind::AdamW)},
                                 {"fused", none}});
      break;
    case OptimizerSpec::Kind::RmsProp:
      group.insert(group.end(), {{"momentum", real(spec.momentum)},
                                 {"alpha", real(spec.alpha)},
                                 {"eps", real(spec.epsilon)},
                                 {"centered", truth(false)},
                                 {"capturable", truth(false)}});
      break;
  }
  group.insert(group.end(), {{"maximize", truth(false)}, {"foreach", none}, {"differentiable", truth(false)}});
  return group;
}

/// All states, with the names of their tensors.
std::vector<std::pair<OptimizerState, std::set<std::string>>> knownStates() {
  std::vector<std::pair<OptimizerState, std::set<std::string>>> all;
  for (const OptimizerFacts& facts : kOptimizers) {
    for (const bool hasMomentum : {false, true}) {
      if (hasMomentum && !facts.hasMomentum) continue;
      OptimizerSpec spec;
      spec.kind = facts.kind;
      spec.momentum = hasMomentum ? 1 : 0;
      const std::vector<std::string> names = stateNames(spec);
      all.push_back({{facts.kind, hasMomentum}, {names.begin(), names.end()}});
    }
  }
  return all;
}

}  // namespace

OptimizerState stateOf(const OptimizerSpec& spec) { return {spec.kind, spec.momentum != 0}; }

int numberOf(const OptimizerState& state) {
  const OptimizerFacts facts = factsOf(state.kind);
  return state.hasMomentum ? facts.stateNumberWithMomentum : facts.stateNumber;
}

std::string nameOf(const OptimizerState& state) { return std::string(nameOf(state.kind)) + (state.hasMomentum ? " with momentum" : ""); }

std::optional<OptimizerState> optimizerState(double number) {
  for (const auto& [state, names] : knownStates()) {
    if (number == numberOf(state)) return state;
  }
  return std::nullopt;
}

std::optional<OptimizerState> optimizerState(const std::vector<std::string>& tensors, OptimizerSpec::Kind preferred) {
  const auto all = knownStates();
  std::set<std::string> held;
  for (const auto& [state, names] : all) {
    for (const std::string& name : names) {
      if (std::ranges::any_of(tensors, [&](const std::string& tensor) { return tensor.starts_with(name + "/"); })) held.insert(name);
    }
  }
  std::optional<OptimizerState> found;
  for (const auto& [state, names] : all) {
    if (names == held && (!found || found->kind != preferred)) found = state;
  }
  return found;
}

std::vector<LayoutGroup> groupsOf(const OptimizerLayout& layout) {
  if (layout.spec.groups.empty()) return {{membersOf(layout.spec, layout.steps), layout.parameters}};
  std::vector<LayoutGroup> groups;
  for (std::size_t i = 0; i < layout.spec.groups.size(); ++i)
    groups.push_back({membersOf(ofGroup(layout.spec, i), layout.steps), layout.spec.groups[i].parameters});
  return groups;
}

std::string optimizerPickle(const OptimizerLayout& layout, const std::vector<TensorEntry>& tensors, const std::vector<TensorEntry>& steps) {
  std::map<std::string, std::vector<const TensorEntry*>> states;  // by parameter
  for (const TensorEntry& tensor : tensors) states[tensor.name.substr(tensor.name.find('/') + 1)].push_back(&tensor);
  std::string out("}");
  putText(out, "state");
  out += '}';
  const std::vector<LayoutGroup> groups = groupsOf(layout);
  std::size_t index = 0;
  for (const LayoutGroup& group : groups) {
    for (const std::string& parameter : group.parameters) {
      const std::size_t i = index++;
      const auto found = states.find(parameter);
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
  }
  out += 's';
  putText(out, "param_groups");
  out += "](";
  std::int64_t first = 0;
  for (const LayoutGroup& group : groups) {
    out += '}';
    for (const auto& [name, opcodes] : group.members) {
      putText(out, name);
      out += opcodes + 's';
    }
    putText(out, "params");
    out += "](";
    for (std::size_t i = 0; i < group.parameters.size(); ++i) putInteger(out, first++);
    out += "es";
  }
  out += "es";
  return out;
}

}  // namespace pw
