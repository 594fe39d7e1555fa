#include "backends/torch_program.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>

#include "backends/torch_arguments.h"
#include "backends/torch_types.h"
#include "schedules/error.h"
#include "simulator/graph_facts.h"

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

enum class Mode : std::uint8_t { Operator, SetGradEnabled, Autocast, Checkpoint };

struct ProgramStep {
  NodeId id;
  const Node* node = nullptr;
  Mode mode = Mode::Operator;
  std::optional<c10::OperatorHandle> op;
  bool random = false;
  WeightRule rule;
  // A recompute must not change buffers again: batch norm's running statistics are left out, what else writes into a buffer is skipped.
  std::vector<std::size_t> statistics;
  bool writesBuffer = false;
  Stack constants;
  std::vector<Slot> slots;
  std::vector<ValueId> drop;  // values not needed after this step
  // Higher-order nodes: the mode to set, and the sub-graph as a program of its own. Checkpoints: `callInputs` enter, `bodyOutputs` leave.
  bool enabled = false;
  at::ScalarType autocastType = at::kFloat;
  std::vector<ProgramStep> body;
  std::vector<ValueId> bodyInputs, callInputs, bodyOutputs;
  std::vector<bool> outputGradients;  // of a checkpoint's outputs
  std::vector<bool> buffers;          // which of a checkpoint's `callInputs` are buffers
};

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

/// What a step reads and makes; of a checkpoint what enters and leaves it.
std::vector<ValueId> readBy(const ProgramStep& step) { return step.mode == Mode::Checkpoint ? step.callInputs : readsOf(*step.node); }
const std::vector<ValueId>& madeBy(const ProgramStep& step) { return step.mode == Mode::Checkpoint ? step.bodyOutputs : step.node->outputs; }

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
    if ((arguments[i].name() == "training" || arguments[i].name() == "use_input_stats") && step.constants[i].isBool()) return step.constants[i].toBool();
  }
  return false;
}

/// Dropout off, batch norm by its running statistics.
void setEvaluation(ProgramStep& step) {
  const auto& arguments = step.op->schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = arguments[i].name();
    if ((name == "train" || name == "training") && step.constants[i].isBool()) step.constants[i] = false;
    if (name == "dropout_p" || name == "dropout") step.constants[i] = 0.0;
    // Instance norm: by its running statistics where it keeps some.
    if (name == "use_input_stats" && std::any_of(step.slots.begin(), step.slots.end(), [&](const Slot& s) { return arguments[s.position].name() == "running_mean"; })) {
      step.constants[i] = false;
    }
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
      : graph_(graph), options_(options), gradients_(options.gradients), bufferOf_(indexByValue(graph, graph.buffers)) {
    gradients_.resize(graph.values.size());
  }

  std::vector<ProgramStep> prepare(const std::vector<const Node*>& nodes, const std::vector<NodeId>& ids, bool inBody) {
    std::vector<ProgramStep> steps;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const Node& node = *nodes[i];
      if (isSkipped(graph_, node)) continue;
      ProgramStep step;
      step.id = ids[i];
      step.node = &node;
      if (node.target == "torch.ops.higher_order.wrap_with_set_grad_enabled") {
        step.mode = Mode::SetGradEnabled;
      } else if (node.target == "torch.ops.higher_order.wrap_with_autocast") {
        step.mode = Mode::Autocast;
      }
      try {
        step.mode == Mode::Operator ? prepareOperator(node, step) : prepareHigherOrder(node, ids[i], step);
      } catch (const c10::Error& e) {
        throw UsageError(describe(node) + " cannot be prepared: " + e.what_without_backtrace());
      } catch (const std::bad_variant_access&) {
        throw UsageError(describe(node) + " has arguments of an unknown form; export the model again with the pinned torch.");
      }
      if (step.mode == Mode::Operator && !inBody && options_.weights != nullptr) separateWeights(step);
      if (!step.rule.apply) noteAutogradUses(node);
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

  std::vector<ValueId> addedByAutograd;

 private:
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
    step.random = isRandom(*step.op, step.constants);
    if (options_.device >= 0) setDevice(step, options_.device);
    if (!usesBatchStatistics(step)) step.statistics.clear();
    if (options_.evaluate) setEvaluation(step);
    const auto reads = readsOf(node);
    step.writesBuffer = isInPlace(node) && !reads.empty() && bufferOf_[viewedBase(graph_, reads.front()).index()] >= 0;
  }

  void prepareHigherOrder(const Node& node, NodeId id, ProgramStep& step) {
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
    const Subgraph& body = graph_.subgraphs.at(std::get<GraphArg>(node.inputs.at(next++).value).index);
    for (; next < node.inputs.size(); ++next) {
      const auto* input = std::get_if<ValueId>(&node.inputs[next].value);
      if (input == nullptr) throw UsageError(describe(node) + " passes something else than values to its sub-graph, which Pipewright cannot run.");
      step.callInputs.push_back(*input);
    }
    step.bodyInputs = body.inputs;
    step.bodyOutputs = body.outputs;
    std::vector<const Node*> nodes;
    for (const Node& inner : body.nodes) nodes.push_back(&inner);
    step.body = prepare(nodes, std::vector<NodeId>(nodes.size(), id), true);
    planDrops(step.body, body.outputs);
  }

  /// Gives the step a rule where its weights' gradients can be computed apart; follows parameters through views of them.
  void separateWeights(ProgramStep& step) {
    std::vector<ParameterGradient> gradients(step.constants.size());
    std::vector<bool> differentiable(step.constants.size());
    bool any = false;
    for (const Slot& slot : step.slots) {
      for (const auto& value : slot.values) {
        if (!value) continue;
        differentiable[slot.position] = differentiable[slot.position] || options_.differentiable.at(value->index());
        if (slot.kind != Slot::Kind::Tensor || !gradients_[value->index()].sum) continue;
        gradients[slot.position] = gradients_[value->index()];
        any = true;
      }
    }
    if (!any) return;
    if (isView(*step.node) && !isInPlace(*step.node) && step.node->outputs.size() == 1 && !step.node->outputIsList) return followView(step);
    step.rule = weightRule(operatorName(*step.node), step.id, options_.weights, std::move(gradients), differentiable);
  }

  void followView(const ProgramStep& step) {
    const ValueId from = readsOf(*step.node).front();
    const ParameterGradient& gradient = gradients_[from.index()];
    if (!gradient.sum) return;
    Frame frame(graph_.values.size());
    frame[from.index()] = *gradient.sum;
    Stack stack = step.constants;
    try {
      const c10::AutoGradMode off(false);
      fillSlots(step.slots, stack, frame, std::vector<std::int64_t>(graph_.values.size(), kUnknownNumber));
      step.op->callBoxed(stack);
      const at::Tensor view = stack.at(0).toTensor();
      if (view.is_alias_of(*gradient.sum) && view.numel() == gradient.sum->numel()) {
        gradients_[step.node->outputs.front().index()] = {std::make_shared<at::Tensor>(view), gradient.fresh};
        views_.insert(step.node);
      }
    } catch (const std::exception&) {
      // Not a view that depends on the parameter alone: autograd follows it.
    }
  }

  void noteAutogradUses(const Node& node) {
    if (views_.contains(&node)) return;
    for (const ValueId value : readsOf(node)) {
      if (gradients_[value.index()].sum) addedByAutograd.push_back(viewedBase(graph_, value));
    }
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
    group.bodyOutputs.assign(leaving.begin(), leaving.end());
    for (const ValueId v : group.bodyOutputs) group.outputGradients.push_back(options_.differentiable.at(v.index()));
    group.body.assign(std::make_move_iterator(steps.begin() + static_cast<std::ptrdiff_t>(begin)), std::make_move_iterator(steps.begin() + static_cast<std::ptrdiff_t>(end)));
    std::vector<ValueId> keep = group.bodyOutputs;
    keep.insert(keep.end(), group.callInputs.begin(), group.callInputs.end());
    planDrops(group.body, keep);
    return group;
  }

  const ModelGraph& graph_;
  const ProgramOptions& options_;
  std::vector<ParameterGradient> gradients_;  // by value, views of parameters included
  std::vector<int> bufferOf_;
  std::set<const Node*> views_;
};

/// Sets autocast for a sub-graph and restores what was set before.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, bool enabled, at::ScalarType type)
      : device_(device), wasEnabled_(at::autocast::is_autocast_enabled(device)), wasType_(at::autocast::get_autocast_dtype(device)) {
    at::autocast::set_autocast_enabled(device_, enabled);
    if (enabled) at::autocast::set_autocast_dtype(device_, type);
  }
  ~AutocastGuard() {
    at::autocast::set_autocast_enabled(device_, wasEnabled_);
    at::autocast::set_autocast_dtype(device_, wasType_);
    if (!wasEnabled_) at::autocast::clear_cache();  // weights in the other type: the optimizer changes them
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool wasEnabled_;
  at::ScalarType wasType_;
};

/// As the run's options want it; a sub-graph's own mode goes over it.
std::unique_ptr<AutocastGuard> autocastOf(const RunOptions& options) {
  if (options.autocast == DType::Unknown) return nullptr;
  return std::make_unique<AutocastGuard>(deviceOf(options.device).type(), true, scalarType(options.autocast));
}

struct RunContext {
  Frame& frame;
  const RunOptions& options;
  bool again = false;     ///< the recompute of a checkpoint
  bool observed = true;   ///< not in sub-graphs
};

void runSteps(const std::vector<ProgramStep>& steps, const RunContext& context);

void runBody(const ProgramStep& step, const RunContext& context) {
  Frame& frame = context.frame;
  for (std::size_t i = 0; i < step.bodyInputs.size(); ++i) frame[step.bodyInputs[i].index()] = frame[step.callInputs.at(i).index()];
  runSteps(step.body, {frame, context.options, context.again, false});
  for (std::size_t i = 0; i < step.bodyOutputs.size() && i < step.node->outputs.size(); ++i) {
    frame[step.node->outputs[i].index()] = frame[step.bodyOutputs[i].index()];
  }
  for (const ValueId value : step.bodyInputs) frame[value.index()].reset();
  for (const ValueId value : step.bodyOutputs) frame[value.index()].reset();
}

/// Backward of a checkpointed range: runs it again, with autograd, from what entered it (Chen et al., 2016), then backward through that.
class CheckpointNode final : public torch::autograd::Node {
 public:
  CheckpointNode(const ProgramStep& step, RunOptions options, const Frame& frame) : step_(step), options_(std::move(options)), values_(frame.size()) {
    torch::autograd::edge_list edges;
    for (std::size_t i = 0; i < step.callInputs.size(); ++i) {
      // Batch norm's counter moves on between forward and backward, which the recompute does not read: no check of its version.
      const at::Tensor& value = frame[step.callInputs[i].index()];
      const at::Tensor entering = step.buffers[i] && value.defined() ? value.variable_data() : value;
      const bool computed = entering.defined() && entering.requires_grad() && !entering.is_leaf();
      saved_.emplace_back(entering, false);
      computed_.push_back(computed);
      if (computed) edges.push_back(torch::autograd::impl::gradient_edge(entering));
    }
    set_next_edges(std::move(edges));
  }

  std::string name() const override { return "Checkpoint"; }

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    Frame frame(values_);
    std::vector<at::Tensor> entering;
    for (std::size_t i = 0; i < saved_.size(); ++i) {
      at::Tensor value = saved_[i].unpack();
      if (computed_[i]) entering.push_back(value = value.detach().set_requires_grad(true));
      frame[step_.callInputs[i].index()] = std::move(value);
    }
    torch::autograd::variable_list roots, rootGradients, results;
    {
      const c10::AutoGradMode on(true);
      const auto autocast = autocastOf(options_);
      runSteps(step_.body, {frame, options_, true, true});
    }
    for (std::size_t i = 0; i < step_.bodyOutputs.size(); ++i) {
      const at::Tensor& output = frame[step_.bodyOutputs[i].index()];
      if (!gradients[i].defined() || !output.requires_grad()) continue;
      roots.push_back(output);
      rootGradients.push_back(gradients[i]);
    }
    frame.clear();
    gradients.clear();
    if (!roots.empty()) torch::autograd::backward(roots, rootGradients);
    for (at::Tensor& value : entering) results.push_back(value.mutable_grad());
    return results;
  }

  void release_variables() override {
    for (auto& saved : saved_) saved.reset_data();
  }

 private:
  const ProgramStep& step_;  // of the program, which outlives its backward
  RunOptions options_;
  std::size_t values_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<bool> computed_;
};

void runCheckpoint(const ProgramStep& step, const RunContext& context) {
  Frame& frame = context.frame;
  const bool trains = c10::GradMode::is_enabled();
  std::shared_ptr<CheckpointNode> node;
  if (trains) node = std::make_shared<CheckpointNode>(step, context.options, frame);
  {
    const c10::AutoGradMode off(false);
    runSteps(step.body, {frame, context.options, false, context.observed});
  }
  if (!trains) return;
  for (std::size_t i = 0; i < step.bodyOutputs.size(); ++i) {
    at::Tensor& output = frame[step.bodyOutputs[i].index()];
    if (!output.defined()) continue;
    output = output.detach();
    // An output without a gradient takes its place among the node's, so that gradients come by position.
    step.outputGradients[i] ? torch::autograd::set_history(output, node) : static_cast<void>(node->add_input_metadata(torch::autograd::Node::undefined_input()));
  }
}

void callOperator(const ProgramStep& step, Stack& stack) {
  if (step.rule.apply != nullptr && c10::GradMode::is_enabled()) {
    if (step.rule.apply(step.rule, stack)) return;
    for (const ParameterGradient& gradient : step.rule.gradients) {  // autograd adds
      if (gradient.sum && std::exchange(*gradient.fresh, false)) gradient.sum->zero_();
    }
  }
  step.op->callBoxed(stack);
}

void runOperator(const ProgramStep& step, const RunContext& context) {
  Stack stack = step.constants;
  fillSlots(step.slots, stack, context.frame, *context.options.symbolic);
  if (context.again) {
    if (step.writesBuffer) {
      if (!step.node->outputs.empty()) context.frame[step.node->outputs.front().index()] = context.frame[readsOf(*step.node).front().index()];
      return;
    }
    for (const std::size_t i : step.statistics) stack[i] = c10::IValue();
  }
  if (step.random) {
    const std::lock_guard lock(generatorMutex());
    at::Generator generator = at::globalContext().defaultGenerator(deviceOf(context.options.device));
    generator.set_current_seed(seedOf(context.options.key, static_cast<std::uint64_t>(step.id.value)));
    callOperator(step, stack);
  } else {
    callOperator(step, stack);
  }
  store(*step.node, stack, context.frame);
}

void runStep(const ProgramStep& step, const RunContext& context) {
  switch (step.mode) {
    case Mode::Operator: return runOperator(step, context);
    case Mode::Checkpoint: return runCheckpoint(step, context);
    case Mode::SetGradEnabled: {
      const c10::AutoGradMode mode(step.enabled && c10::GradMode::is_enabled());
      return runBody(step, context);
    }
    case Mode::Autocast: {
      const AutocastGuard guard(deviceOf(context.options.device).type(), step.enabled, step.autocastType);
      return runBody(step, context);
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
    if (context.observed && context.options.observer) context.options.observer(step.id);
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

struct NodeProgram::Impl {
  std::vector<ProgramStep> steps;
  std::vector<ValueId> addedByAutograd;
};

NodeProgram::NodeProgram(const ModelGraph& graph, const std::vector<NodeId>& nodes, const ProgramOptions& options) : impl_(std::make_unique<Impl>()) {
  std::vector<const Node*> pointers;
  for (const NodeId id : nodes) pointers.push_back(&graph.node(id));
  Preparation preparation(graph, options);
  impl_->steps = preparation.withCheckpoints(preparation.prepare(pointers, nodes, false));
  planDrops(impl_->steps, options.keep);
  impl_->addedByAutograd = std::move(preparation.addedByAutograd);
}

NodeProgram::~NodeProgram() = default;
NodeProgram::NodeProgram(NodeProgram&&) noexcept = default;

bool NodeProgram::isRandom() const {
  const auto draws = [](const auto& self, const std::vector<ProgramStep>& steps) -> bool {
    return std::ranges::any_of(steps, [&](const ProgramStep& step) { return step.random || self(self, step.body); });
  };
  return draws(draws, impl_->steps);
}

const std::vector<ValueId>& NodeProgram::addedByAutograd() const { return impl_->addedByAutograd; }

void NodeProgram::run(Frame& frame, const RunOptions& options) const {
  const auto autocast = autocastOf(options);
  runSteps(impl_->steps, {frame, options, false, true});
}

}  // namespace pw
