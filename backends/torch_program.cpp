#include "backends/torch_program.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "backends/torch_arguments.h"
#include "backends/torch_types.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Stack = std::vector<c10::IValue>;

c10::OperatorHandle findOperator(const Node& node) {
  static const std::string prefix = "torch.ops.";
  const auto fail = [&] {
    return UsageError(describe(node) + " is not part of LibTorch; export the model without it (custom operators: use the plain PyTorch form).");
  };
  if (node.target.rfind(prefix, 0) != 0) throw fail();
  const std::string name = node.target.substr(prefix.size());
  const std::size_t first = name.find('.');
  const std::size_t last = name.rfind('.');
  if (first == std::string::npos || first == last) throw fail();
  const std::string overload = name.substr(last + 1);
  const std::string qualified = name.substr(0, first) + "::" + name.substr(first + 1, last - first - 1);
  const auto handle = c10::Dispatcher::singleton().findSchema({qualified, overload == "default" ? "" : overload});
  if (!handle) throw fail();
  return *handle;
}

bool isRandom(const c10::OperatorHandle& op, const Node& node) {
  if (op.hasTag(at::Tag::nondeterministic_seeded)) return true;
  for (const NamedArgument& argument : node.inputs) {
    if (argument.name != "dropout_p" && argument.name != "dropout") continue;
    const auto* p = std::get_if<double>(&argument.value);
    if (p != nullptr && *p > 0) return true;
  }
  return false;
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) over the parts of the key.
std::uint64_t seedOf(const RandomKey& key, std::uint64_t node) {
  std::uint64_t h = key.seed;
  for (const std::uint64_t part : {static_cast<std::uint64_t>(key.step), static_cast<std::uint64_t>(key.microbatch), node}) {
    h += 0x9E3779B97F4A7C15ULL + part;
    h = (h ^ (h >> 30U)) * 0xBF58476D1CE4E5B9ULL;
    h = (h ^ (h >> 27U)) * 0x94D049BB133111EBULL;
    h ^= h >> 31U;
  }
  return h;
}

/// The default generator is one per process; ranks that are threads of one process take turns.
std::mutex& generatorMutex() {
  static std::mutex mutex;
  return mutex;
}

enum class Mode : std::uint8_t { Operator, SetGradEnabled, Autocast };

}  // namespace

struct ProgramStep {
  NodeId id;
  const Node* node = nullptr;
  Mode mode = Mode::Operator;
  std::optional<c10::OperatorHandle> op;
  bool random = false;
  Stack constants;
  std::vector<Slot> slots;
  std::vector<ValueId> drop;  // values not needed after this step
  // Higher-order nodes: the mode to set, and the sub-graph as a program of its own.
  bool enabled = false;
  at::ScalarType autocastType = at::kFloat;
  std::vector<ProgramStep> body;
  std::vector<ValueId> bodyInputs, callInputs, bodyOutputs;
};

namespace {

void store(const Node& node, Stack& results, Frame& frame) {
  if (node.outputIsList) {
    const auto list = results.at(0).toTensorVector();
    if (list.size() != node.outputs.size()) throw Error("returned a list of another length than at export");
    for (std::size_t i = 0; i < list.size(); ++i) frame[node.outputs[i].index()] = list[i];
    return;
  }
  for (std::size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    if (results[i].isTensor()) frame[node.outputs[i].index()] = std::move(results[i]).toTensor();
  }
}

bool isSkipped(const ModelGraph& graph, const Node& node) {
  static const std::string assertion = "torch.ops.aten._assert";
  if (node.target.rfind(assertion, 0) == 0 || node.target.rfind("torch.ops.aten.sym_constrain", 0) == 0) return true;
  if (node.outputs.empty()) return false;
  for (const ValueId output : node.outputs) {
    if (!graph.value(output).symbolic) return false;
  }
  return true;  // symbolic numbers are evaluated from their expressions
}

void prepareOperator(const ModelGraph& graph, const Node& node, ProgramStep& step) {
  step.op = findOperator(node);
  step.random = isRandom(*step.op, node);
  std::unordered_map<std::string, const Argument*> given;
  for (const NamedArgument& argument : node.inputs) given.emplace(argument.name, &argument.value);
  for (const c10::Argument& argument : step.op->schema().arguments()) {
    const auto found = given.find(argument.name());
    if (found != given.end()) {
      bindArgument(graph, node, argument, *found->second, step.constants, step.slots);
    } else if (argument.default_value()) {
      step.constants.push_back(*argument.default_value());
    } else {
      throw UsageError(describe(node) + " lacks its argument " + argument.name() + "; export the model again with the pinned torch.");
    }
  }
}

std::vector<ProgramStep> prepare(const ModelGraph& graph, const std::vector<const Node*>& nodes, const std::vector<NodeId>& ids,
                              const std::vector<ValueId>& keep);

void prepareHigherOrder(const ModelGraph& graph, const Node& node, NodeId id, ProgramStep& step) {
  std::size_t next = 0;
  if (step.mode == Mode::SetGradEnabled) {
    step.enabled = std::get<bool>(node.inputs.at(next++).value);
  } else {
    next = 1;  // device type
    const auto* dtype = std::get_if<ScalarTypeArg>(&node.inputs.at(next++).value);
    step.autocastType = dtype == nullptr ? at::kBFloat16 : scalarType(dtype->dtype);
    step.enabled = std::get<bool>(node.inputs.at(next++).value);
    ++next;  // cache_enabled
  }
  const Subgraph& body = graph.subgraphs.at(std::get<GraphArg>(node.inputs.at(next++).value).index);
  for (; next < node.inputs.size(); ++next) {
    const auto* input = std::get_if<ValueId>(&node.inputs[next].value);
    if (input == nullptr) throw UsageError(describe(node) + " passes something else than values to its sub-graph, which Pipewright cannot run.");
    step.callInputs.push_back(*input);
  }
  step.bodyInputs = body.inputs;
  step.bodyOutputs = body.outputs;
  std::vector<const Node*> nodes;
  for (const Node& inner : body.nodes) nodes.push_back(&inner);
  step.body = prepare(graph, nodes, std::vector<NodeId>(nodes.size(), id), body.outputs);
}

void planDrops(std::vector<ProgramStep>& steps, const std::vector<ValueId>& keep) {
  std::unordered_map<ValueId, std::size_t> lastUse;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const ValueId value : readsOf(*steps[i].node)) lastUse[value] = i;
    for (const ValueId value : steps[i].node->outputs) lastUse.emplace(value, i);
  }
  for (const ValueId value : keep) lastUse.erase(value);
  for (const auto& [value, step] : lastUse) steps[step].drop.push_back(value);
}

std::vector<ProgramStep> prepare(const ModelGraph& graph, const std::vector<const Node*>& nodes, const std::vector<NodeId>& ids,
                              const std::vector<ValueId>& keep) {
  std::vector<ProgramStep> steps;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const Node& node = *nodes[i];
    if (isSkipped(graph, node)) continue;
    ProgramStep step;
    step.id = ids[i];
    step.node = &node;
    if (node.target == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
      step.mode = Mode::SetGradEnabled;
    } else if (node.target == "torch.ops.higher_order.wrap_with_autocast") {
      step.mode = Mode::Autocast;
    }
    try {
      step.mode == Mode::Operator ? prepareOperator(graph, node, step) : prepareHigherOrder(graph, node, ids[i], step);
    } catch (const c10::Error& e) {
      throw UsageError(describe(node) + " cannot be prepared: " + e.what_without_backtrace());
    } catch (const std::bad_variant_access&) {
      throw UsageError(describe(node) + " has arguments of an unknown form; export the model again with the pinned torch.");
    }
    steps.push_back(std::move(step));
  }
  planDrops(steps, keep);
  return steps;
}

/// Sets autocast for a sub-graph and restores what was set before.
class AutocastGuard {
 public:
  AutocastGuard(bool enabled, at::ScalarType type)
      : wasEnabled_(at::autocast::is_autocast_enabled(at::kCPU)), wasType_(at::autocast::get_autocast_dtype(at::kCPU)) {
    at::autocast::set_autocast_enabled(at::kCPU, enabled);
    if (enabled) at::autocast::set_autocast_dtype(at::kCPU, type);
  }
  ~AutocastGuard() {
    at::autocast::set_autocast_enabled(at::kCPU, wasEnabled_);
    at::autocast::set_autocast_dtype(at::kCPU, wasType_);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  bool wasEnabled_;
  at::ScalarType wasType_;
};

struct RunContext {
  Frame& frame;
  const std::vector<std::int64_t>& symbolic;
  const RandomKey& key;
  const std::function<void(NodeId)>& observer;
};

void runSteps(const std::vector<ProgramStep>& steps, const RunContext& context);

void runBody(const ProgramStep& step, const RunContext& context) {
  Frame& frame = context.frame;
  for (std::size_t i = 0; i < step.bodyInputs.size(); ++i) frame[step.bodyInputs[i].index()] = frame[step.callInputs.at(i).index()];
  static const std::function<void(NodeId)> unobserved;
  runSteps(step.body, {frame, context.symbolic, context.key, unobserved});
  for (std::size_t i = 0; i < step.bodyOutputs.size() && i < step.node->outputs.size(); ++i) {
    frame[step.node->outputs[i].index()] = frame[step.bodyOutputs[i].index()];
  }
  for (const ValueId value : step.bodyInputs) frame[value.index()].reset();
  for (const ValueId value : step.bodyOutputs) frame[value.index()].reset();
}

void runStep(const ProgramStep& step, const RunContext& context) {
  switch (step.mode) {
    case Mode::Operator: {
      Stack stack = step.constants;
      fillSlots(step.slots, stack, context.frame, context.symbolic);
      if (step.random) {
        const std::lock_guard lock(generatorMutex());
        at::Generator generator = at::globalContext().defaultGenerator(c10::kCPU);
        generator.set_current_seed(seedOf(context.key, static_cast<std::uint64_t>(step.id.value)));
        step.op->callBoxed(stack);
      } else {
        step.op->callBoxed(stack);
      }
      store(*step.node, stack, context.frame);
      break;
    }
    case Mode::SetGradEnabled: {
      const c10::AutoGradMode mode(step.enabled);
      runBody(step, context);
      break;
    }
    case Mode::Autocast: {
      const AutocastGuard guard(step.enabled, step.autocastType);
      runBody(step, context);
      break;
    }
  }
}

void runSteps(const std::vector<ProgramStep>& steps, const RunContext& context) {
  for (const ProgramStep& step : steps) {
    try {
      runStep(step, context);
    } catch (const c10::Error& e) {
      throw Error(describe(*step.node) + " failed: " + e.what_without_backtrace());
    } catch (const Error& e) {
      if (step.mode != Mode::Operator) throw;  // the operator inside says which it is
      throw Error(describe(*step.node) + " " + e.what() + ".");
    }
    for (const ValueId value : step.drop) context.frame[value.index()].reset();
    if (context.observer) context.observer(step.id);
  }
}

}  // namespace

std::vector<std::int64_t> symbolicValues(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<std::int64_t> numbers(graph.values.size(), 0);
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const auto& symbolic = graph.values[i].symbolic;
    if (!symbolic) continue;
    try {
      numbers[i] = evaluate(*symbolic, bindings);
    } catch (const Error&) {
      numbers[i] = kUnknownNumber;
    }
  }
  return numbers;
}

NodeProgram::NodeProgram(const ModelGraph& graph, const std::vector<NodeId>& nodes, const std::vector<ValueId>& keep) {
  std::vector<const Node*> pointers;
  for (const NodeId id : nodes) pointers.push_back(&graph.node(id));
  steps_ = prepare(graph, pointers, nodes, keep);
}

NodeProgram::~NodeProgram() = default;
NodeProgram::NodeProgram(NodeProgram&&) noexcept = default;

void NodeProgram::run(Frame& frame, const std::vector<std::int64_t>& symbolic, const RandomKey& key,
                  const std::function<void(NodeId)>& observer) const {
  runSteps(steps_, {frame, symbolic, key, observer});
}

}  // namespace pw
