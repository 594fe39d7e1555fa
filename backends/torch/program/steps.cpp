#include "backends/torch/program/steps.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <array>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

#include "backends/torch/program/arguments.h"
#include "backends/torch/program/operators.h"
#include "backends/torch/program/parameter_uses.h"
#include "backends/torch/program/symbolic_numbers.h"
#include "backends/torch/program/types.h"
#include "schedules/error.h"
#include "simulator/model/graph_facts.h"
#include "simulator/model/state_changes.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

c10::OperatorHandle findOperator(const Node& node) {
  const auto fail = [&] {
    if (node.target.starts_with("torch.ops.higher_order.")) {
      return UsageError(describe(node) +
                        " takes sub-graphs in a way that Pipewright does not know; write that part of the model without it.");
    }
    return UsageError(
        describe(node) +
        " is not an operator of LibTorch; give the library that defines it with --load-library FILE.so, or write that part of the model in "
        "plain PyTorch before exporting.");
  };
  const auto op = operatorNamed(node.target);
  if (!op) throw fail();
  if (touchesFiles(*op))
    throw UsageError(describe(node) + " reads or writes a file, which a model must not do; keep what it reads as a buffer of the model.");
  return *op;
}

/// The operator that takes a step, with the arguments of the traced one. `view` refuses strides that `reshape` copies, and the kernel that
/// made its input can lay its elements out otherwise here than where the model was traced: attention does on a GPU.
c10::OperatorHandle operatorToRun(const c10::OperatorHandle& traced) {
  const c10::OperatorName& name = traced.operator_name();
  const bool isView = (name.name == "aten::view" || name.name == "aten::_unsafe_view") && name.overload_name.empty();
  return isView ? c10::Dispatcher::singleton().findSchemaOrThrow("aten::reshape", "") : traced;
}

/// Whether an operator draws random numbers with these arguments: dropout of nothing does not, though its operator may.
bool isRandom(const c10::OperatorHandle& op, const Stack& arguments) {
  const bool mayDraw = op.hasTag(at::Tag::nondeterministic_seeded);
  std::optional<double> rate;
  bool trains = true;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = op.schema().arguments()[i].name();
    const bool isRate = name == "dropout_p" || name == "dropout" || (mayDraw && name == "p");
    if (isRate && arguments[i].isDouble()) rate = arguments[i].toDouble();
    if ((name == "train" || name == "training") && arguments[i].isBool()) trains = arguments[i].toBool();
  }
  return rate ? *rate > 0 && trains : mayDraw;
}

/// What a node with sub-graphs runs as; `Operator` for other targets.
Mode modeOf(const std::string& target) {
  static const std::string higherOrder = "torch.ops.higher_order.";
  constexpr std::array<std::pair<std::string_view, Mode>, 5> kModes{{{"wrap_with_set_grad_enabled", Mode::SetGradEnabled},
                                                                     {"wrap_with_autocast", Mode::Autocast},
                                                                     {"tag_activation_checkpoint", Mode::Call},
                                                                     {"cond", Mode::Cond},
                                                                     {"while_loop", Mode::While}}};
  for (const auto& [name, mode] : kModes) {
    if (target == higherOrder + std::string(name)) return mode;
  }
  return Mode::Operator;
}

/// What a step reads and makes; of a checkpoint what enters and leaves it.
std::vector<ValueId> readBy(const ProgramStep& step) { return step.mode == Mode::Checkpoint ? step.callInputs : readsOf(*step.node); }
const std::vector<ValueId>& madeBy(const ProgramStep& step) {
  return step.mode == Mode::Checkpoint ? step.bodies.front().outputs : step.node->outputs;
}

void planDrops(std::vector<ProgramStep>& steps, const std::vector<ValueId>& keep) {
  std::unordered_map<ValueId, std::size_t> lastUse;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for (const ValueId value : readBy(steps[i])) lastUse[value] = i;
    for (const ValueId value : madeBy(steps[i])) lastUse.emplace(value, i);
  }
  for (const ValueId value : keep) lastUse.erase(value);
  for (const auto& [value, step] : lastUse) steps[step].drop.push_back(value);
}

/// A norm in training, which moves its running statistics and does not read them.
bool usesBatchStatistics(const ProgramStep& step) {
  const auto& arguments = step.op->schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if ((arguments[i].name() == "training" || arguments[i].name() == "use_input_stats") && step.constants[i].isBool())
      return step.constants[i].toBool();
  }
  return false;
}

/// Dropout off, batch norm by its running statistics, where it has some.
void setEvaluation(ProgramStep& step) {
  const auto& arguments = step.op->schema().arguments();
  const auto isStatistics = [](const auto& argument) { return argument.name() == "running_mean"; };
  const bool takesStatistics = std::any_of(arguments.begin(), arguments.end(), isStatistics);
  const bool hasStatistics =
      std::any_of(step.slots.begin(), step.slots.end(), [&](const Slot& s) { return isStatistics(arguments[s.position]); });
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    const bool keepsStatistics = !takesStatistics || hasStatistics;  // else the batch's are used in evaluation, too
    if ((name == "train" || name == "training") && step.constants[i].isBool() && keepsStatistics) step.constants[i] = false;
    if (name == "dropout_p" || name == "dropout") step.constants[i] = 0.0;
    // Instance norm: by its running statistics where it keeps some.
    if (name == "use_input_stats" && hasStatistics) step.constants[i] = false;
  }
  step.random = isRandom(*step.op, step.constants);
}

/// Tensors that an operator makes are made where the others are; those it was traced with were on the host.
void setDevice(ProgramStep& step, int device) {
  const auto& arguments = step.op->schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (step.constants[i].isDevice() || arguments[i].name() == "device") step.constants[i] = deviceOf(device);
  }
}

/// Prepares the steps of one program.
class Preparation {
 public:
  Preparation(const ModelGraph& graph, const ProgramOptions& options)
      : parameters(graph, options),
        graph_(graph),
        options_(options),
        bufferOf_(indexByValue(graph, graph.buffers)),
        showsChangedState_(showsChangedState(graph)),
        computed_(computedNumbers(graph)),
        bindings_(bindBatch(graph, exportedBatch(graph))) {}

  /// With `outer`, the steps of one of this node's sub-graphs.
  std::vector<ProgramStep> prepare(const std::vector<const Node*>& nodes, const std::vector<NodeId>& ids,
                                   const ProgramStep* outer = nullptr) {
    std::vector<ProgramStep> steps;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = *nodes[i];
      if (isSkipped(node)) continue;
      ProgramStep step;
      step.id = ids[i];
      step.inner = inner_ = outer == nullptr ? 0 : inner_ + 1;
      step.node = &node;
      step.mode = isArithmetic(node) ? Mode::Arithmetic : modeOf(node.target);
      try {
        prepareStep(step);
      } catch (const c10::Error& e) {
        throw UsageError(describe(node) + " cannot be prepared: " + e.what_without_backtrace());
      } catch (const std::bad_variant_access&) {
        throw UsageError(describe(node) + " has arguments of an unknown form; export the model again with the pinned torch.");
      } catch (const std::out_of_range&) {
        throw UsageError(describe(node) + " lacks arguments; export the model again with the pinned torch.");
      }
      step.readsData = readsData(step);
      if (step.mode == Mode::Operator && outer == nullptr && options_.weights != nullptr) parameters.separate(step);
      if (!step.rule.apply) parameters.noteAutograd(node);
      steps.push_back(std::move(step));
    }
    return steps;
  }

  /// Groups the steps of every checkpointed range into one.
  [[nodiscard]] std::vector<ProgramStep> withCheckpoints(std::vector<ProgramStep> steps) const {
    std::vector<ProgramStep> grouped;
    std::size_t next = 0;
    for (std::size_t i = 0; i < steps.size();) {
      while (next < options_.checkpoints.size() && options_.checkpoints[next].end <= steps[i].id) ++next;
      if (next == options_.checkpoints.size() || steps[i].id < options_.checkpoints[next].begin) {
        grouped.push_back(std::move(steps[i++]));
        continue;
      }
      std::size_t end = i;
      while (end < steps.size() && steps[end].id < options_.checkpoints[next].end) ++end;
      grouped.push_back(checkpoint(steps, i, end));
      i = end;
    }
    return grouped;
  }

  ParameterUses parameters;

 private:
  /// Assertions are of the exporter's; numbers that the sizes of the inputs give are evaluated from their expressions.
  [[nodiscard]] bool isSkipped(const Node& node) const {
    if (isAssertion(node)) return true;
    return !node.outputs.empty() &&
           std::ranges::all_of(node.outputs, [&](ValueId v) { return graph_.value(v).symbolic && !computed_[v.index()]; });
  }

  [[nodiscard]] bool readsData(const ProgramStep& step) const {
    if (step.mode == Mode::While || (step.predicate && graph_.value(*step.predicate).tensor) || waitsForDevice(graph_, *step.node))
      return true;
    return std::ranges::any_of(step.node->outputs, [&](ValueId v) {
      return computed_[v.index()] || (graph_.value(v).tensor && !knownShape(*graph_.value(v).tensor, bindings_));
    });
  }

  void prepareStep(ProgramStep& step) {
    switch (step.mode) {
      case Mode::Operator: return prepareOperator(*step.node, step);
      case Mode::Arithmetic: return requireKnownArithmetic(*step.node);
      case Mode::SetGradEnabled:
      case Mode::Autocast:
      case Mode::Call: return prepareRegion(*step.node, step);
      case Mode::Cond: return prepareCond(*step.node, step);
      case Mode::While: return prepareWhile(*step.node, step);
      case Mode::Checkpoint: return;  // made of prepared steps
    }
  }

  void prepareOperator(const Node& node, ProgramStep& step) {
    step.op = findOperator(node);
    std::unordered_map<std::string, const Argument*> given;
    for (const NamedArgument& argument : node.inputs) given.emplace(argument.name, &argument.value);
    for (const c10::Argument& argument : step.op->schema().arguments()) {
      const auto found = given.find(argument.name());
      if (found != given.end()) {
        if (argument.name().rfind("running_", 0) == 0) step.statistics.push_back(step.constants.size());
        bindArgument(graph_, node, argument, *found->second, step.constants, step.slots);
      } else if (argument.default_value()) {
        step.constants.push_back(*argument.default_value());
      } else {
        throw UsageError(describe(node) + " lacks its argument " + argument.name() + "; export the model again with the pinned torch.");
      }
    }
    step.op = operatorToRun(*step.op);
    step.random = isRandom(*step.op, step.constants);
    if (options_.device >= 0) setDevice(step, options_.device);
    if (!usesBatchStatistics(step)) step.statistics.clear();
    if (options_.evaluate) setEvaluation(step);
    if (!isView(node)) noteChangingStates(step);
    const auto reads = readsOf(node);
    step.writesBuffer = isInPlace(node) && !reads.empty() && bufferOf_[viewedBase(graph_, reads.front()).index()] >= 0;
  }

  void noteChangingStates(ProgramStep& step) const {
    const auto& arguments = step.op->schema().arguments();
    for (const Slot& slot : step.slots) {
      const c10::AliasInfo* alias = arguments[slot.position].alias_info();
      const bool isWritten =
          (alias != nullptr && alias->isWrite()) || std::ranges::find(step.statistics, slot.position) != step.statistics.end();
      for (std::size_t i = 0; i < slot.values.size() && !isWritten; ++i) {
        if (slot.values[i] && showsChangedState_[slot.values[i]->index()]) step.changingStates.push_back({slot.position, i});
      }
    }
  }

  void prepareRegion(const Node& node, ProgramStep& step) {
    std::size_t next = 0;
    if (step.mode == Mode::SetGradEnabled) {
      step.enabled = std::get<bool>(node.inputs.at(next++).value);
    } else if (step.mode == Mode::Autocast) {
      next = 1;  // device type
      const auto* dtype = std::get_if<ScalarTypeArg>(&node.inputs.at(next++).value);
      step.autocastType = dtype == nullptr ? at::kBFloat16 : scalarType(dtype->dtype);
      step.enabled = std::get<bool>(node.inputs.at(next++).value);
      ++next;  // cache_enabled
    }
    const std::size_t body = next++;
    for (; next < node.inputs.size(); ++next) {
      const auto* input = std::get_if<ValueId>(&node.inputs[next].value);
      if (input != nullptr) {
        step.callInputs.push_back(*input);
      } else if (step.mode != Mode::Call || node.inputs[next].name.empty()) {  // keyword arguments of a checkpoint say how it recomputes
        throw UsageError(describe(node) + " passes something other than values to its sub-graph, which Pipewright cannot run.");
      }
    }
    addBody(step, node.inputs.at(body).value, node.outputs.size());
  }

  void prepareCond(const Node& node, ProgramStep& step) {
    if (const auto* predicate = std::get_if<ValueId>(&node.inputs.at(0).value)) {
      step.predicate = *predicate;
    } else {
      step.enabled = std::get<bool>(node.inputs[0].value);
    }
    appendOperands(node, node.inputs.at(3).value, step);
    for (const std::size_t branch : {1U, 2U}) addBody(step, node.inputs.at(branch).value, node.outputs.size());
  }

  void prepareWhile(const Node& node, ProgramStep& step) {
    for (const std::size_t list : {2U, 3U}) appendOperands(node, node.inputs.at(list).value, step);
    addBody(step, node.inputs.at(0).value, 1);
    addBody(step, node.inputs.at(1).value, node.outputs.size());
    if (step.callInputs.size() < node.outputs.size())
      throw UsageError(describe(node) + " carries fewer values than it returns; export the model again with the pinned torch.");
  }

  static void appendOperands(const Node& node, const Argument& argument, ProgramStep& step) {
    if (const auto* list = std::get_if<std::vector<ValueId>>(&argument)) {
      step.callInputs.insert(step.callInputs.end(), list->begin(), list->end());
      return;
    }
    if (const auto* list = std::get_if<std::vector<IntOrValue>>(&argument)) {
      for (const IntOrValue& element : *list) step.callInputs.push_back(std::get<ValueId>(element));
      return;
    }
    const auto* numbers = std::get_if<std::vector<std::int64_t>>(&argument);
    if (!std::holds_alternative<NoneArg>(argument) && (numbers == nullptr || !numbers->empty())) {
      throw UsageError(describe(node) + " passes something other than values to its sub-graphs, which Pipewright cannot run.");
    }
  }

  void addBody(ProgramStep& step, const Argument& argument, std::size_t outputs) {
    const Subgraph& body = graph_.subgraphs.at(std::get<GraphArg>(argument).index);
    if (body.inputs.size() != step.callInputs.size() || body.outputs.size() < outputs) {
      throw UsageError(
          describe(*step.node) +
          " calls a sub-graph with another number of inputs or outputs than it has; export the model again with the pinned torch.");
    }
    for (std::size_t i = 0; i < outputs; ++i) {
      const Value& made = graph_.value(body.outputs[i]);
      if (step.node->outputs.size() != outputs || made.tensor || made.symbolic || !graph_.value(step.node->outputs[i]).symbolic) continue;
      throw UsageError(describe(*step.node) + " returns a plain number from its sub-graph, which Pipewright cannot run; return a tensor.");
    }
    std::vector<const Node*> nodes;
    for (const Node& inner : body.nodes) nodes.push_back(&inner);
    StepBody prepared{prepare(nodes, std::vector<NodeId>(nodes.size(), step.id), &step), body.inputs, body.outputs};
    planDrops(prepared.steps, prepared.outputs);
    step.bodies.push_back(std::move(prepared));
  }

  [[nodiscard]] ProgramStep checkpoint(std::vector<ProgramStep>& steps, std::size_t begin, std::size_t end) const {
    ProgramStep group;
    group.id = steps[end - 1].id;
    group.node = steps[begin].node;
    group.mode = Mode::Checkpoint;
    std::set<ValueId> made, entering;
    for (std::size_t i = begin; i < end; ++i) {
      for (const ValueId v : readsOf(*steps[i].node)) {
        if (!made.contains(v) && !graph_.value(v).symbolic) entering.insert(v);
      }
      made.insert(steps[i].node->outputs.begin(), steps[i].node->outputs.end());
    }
    std::set<ValueId> leaving;
    for (const ValueId v : options_.keep) {
      if (made.contains(v)) leaving.insert(v);
    }
    for (std::size_t i = end; i < steps.size(); ++i) {
      for (const ValueId v : readsOf(*steps[i].node)) {
        if (made.contains(v)) leaving.insert(v);
      }
    }
    group.callInputs.assign(entering.begin(), entering.end());
    for (const ValueId v : group.callInputs) group.buffers.push_back(bufferOf_[v.index()] >= 0);
    StepBody body;
    body.outputs.assign(leaving.begin(), leaving.end());
    for (const ValueId v : body.outputs) group.outputGradients.push_back(options_.differentiable.at(v.index()));
    body.steps.assign(std::make_move_iterator(steps.begin() + static_cast<std::ptrdiff_t>(begin)),
                      std::make_move_iterator(steps.begin() + static_cast<std::ptrdiff_t>(end)));
    std::vector<ValueId> keep = body.outputs;
    keep.insert(keep.end(), group.callInputs.begin(), group.callInputs.end());
    planDrops(body.steps, keep);
    group.bodies.push_back(std::move(body));
    return group;
  }

  const ModelGraph& graph_;
  const ProgramOptions& options_;
  std::vector<int> bufferOf_;
  std::vector<bool> showsChangedState_;
  std::vector<bool> computed_;
  Bindings bindings_;
  std::uint64_t inner_ = 0;
};

}  // namespace

bool isHigherOrder(const std::string& target) { return modeOf(target) != Mode::Operator; }

PreparedSteps prepareSteps(const ModelGraph& graph, const std::vector<NodeId>& nodes, const ProgramOptions& options) {
  std::vector<const Node*> pointers;
  pointers.reserve(nodes.size());
  for (const NodeId id : nodes) pointers.push_back(&graph.node(id));
  Preparation preparation(graph, options);
  PreparedSteps prepared;
  prepared.steps = preparation.withCheckpoints(preparation.prepare(pointers, nodes));
  planDrops(prepared.steps, options.keep);
  preparation.parameters.noteKept();
  prepared.addedByAutograd = preparation.parameters.addedByAutograd();
  return prepared;
}

}  // namespace pw
