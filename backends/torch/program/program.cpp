#include "backends/torch/program/program.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "backends/torch/program/steps.h"
#include "backends/torch/program/symbolic_numbers.h"
#include "backends/torch/program/types.h"
#include "schedules/error.h"
#include "simulator/model/symbolic.h"

namespace pw {
namespace {

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

/// A number that an operator returned (`item`, `sym_size`); nothing for other results.
std::optional<Number> numberOf(const c10::IValue& result) {
  if (result.isInt()) return result.toInt();
  if (result.isDouble()) return result.toDouble();
  if (result.isBool()) return std::int64_t{result.toBool() ? 1 : 0};
  return result.isSymInt() ? std::optional<Number>(result.toSymInt().expect_int()) : std::nullopt;
}

void store(const Node& node, Stack& results, Frame& frame, Numbers& numbers) {
  if (node.outputIsList) {
    const auto list = results.at(0).toTensorVector();
    if (list.size() != node.outputs.size()) throw Error("returned a list of another length than at export");
    for (std::size_t i = 0; i < list.size(); ++i) frame[node.outputs[i].index()] = list[i];
    return;
  }
  for (std::size_t i = 0; i < node.outputs.size() && i < results.size(); ++i) {
    if (results[i].isTensor()) {
      frame[node.outputs[i].index()] = std::move(results[i]).toTensor();
    } else if (const auto number = numberOf(results[i])) {
      numbers.set(node.outputs[i], *number);
    }
  }
}

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
  Numbers& numbers;
  bool again = false;           ///< the recompute of a checkpoint
  bool observed = true;         ///< not in sub-graphs
  std::uint64_t iteration = 0;  ///< of the loops around
};

void runSteps(const std::vector<ProgramStep>& steps, const RunContext& context);

/// A value, be it tensor or number, under another name.
void copyValue(const RunContext& context, ValueId from, ValueId to) {
  context.frame[to.index()] = context.frame[from.index()];
  context.numbers.copy(from, to);
}

/// Runs a body on `inputs`; its results get the names `outputs`.
void runBody(const StepBody& body, const std::vector<ValueId>& inputs, const std::vector<ValueId>& outputs, const RunContext& context) {
  for (std::size_t i = 0; i < body.inputs.size(); ++i) copyValue(context, inputs.at(i), body.inputs[i]);
  runSteps(body.steps, {context.frame, context.options, context.numbers, context.again, false, context.iteration});
  for (std::size_t i = 0; i < outputs.size(); ++i) copyValue(context, body.outputs[i], outputs[i]);
  for (const ValueId value : body.inputs) context.frame[value.index()].reset();
  for (const ValueId value : body.outputs) context.frame[value.index()].reset();
}

/// Reads a number or a tensor of one element: of a GPU, waits for it.
bool isTrue(const RunContext& context, ValueId value) {
  const at::Tensor& tensor = context.frame[value.index()];
  if (tensor.defined()) return tensor.item().toBool();
  const auto number = context.numbers.find(value);
  if (!number) throw Error("depends on a number that was not computed on this stage; move the split point");
  return asDouble(*number) != 0;
}

void runCond(const ProgramStep& step, const RunContext& context) {
  const bool first = step.predicate ? isTrue(context, *step.predicate) : step.enabled;
  runBody(step.bodies[first ? 0 : 1], step.callInputs, step.node->outputs, context);
}

/// Each round's carried values take the names of the node's outputs; autograd follows all rounds.
void runWhile(const ProgramStep& step, const RunContext& context) {
  const std::vector<ValueId>& outputs = step.node->outputs;
  const StepBody& condition = step.bodies[0];
  const ValueId answer = condition.outputs.front();
  std::vector<ValueId> inputs = step.callInputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    copyValue(context, inputs[i], outputs[i]);
    inputs[i] = outputs[i];
  }
  RunContext round{context.frame, context.options, context.numbers, context.again, false, context.iteration << 20U};
  for (;;) {
    ++round.iteration;
    for (std::size_t i = 0; i < inputs.size(); ++i) copyValue(round, inputs[i], condition.inputs[i]);
    {
      const c10::AutoGradMode off(false);
      runSteps(condition.steps, round);
    }
    const bool goesOn = isTrue(round, answer);
    for (const ValueId value : condition.inputs) round.frame[value.index()].reset();
    round.frame[answer.index()].reset();
    if (!goesOn) return;
    runBody(step.bodies[1], inputs, outputs, round);
  }
}

/// Backward of a checkpointed range: runs it again, with autograd, from what entered it (Chen et al., 2016), then backward through that.
class CheckpointNode final : public torch::autograd::Node {
 public:
  CheckpointNode(const ProgramStep& step, const RunContext& context)
      : step_(step), options_(context.options), numbers_(context.numbers), values_(context.frame.size()) {
    const Frame& frame = context.frame;
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
      Numbers numbers = numbers_;
      runSteps(step_.bodies.front().steps, {frame, options_, numbers, true, true});
    }
    const std::vector<ValueId>& outputs = step_.bodies.front().outputs;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const at::Tensor& output = frame[outputs[i].index()];
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
  Numbers numbers_;  // as they were before the forward
  std::size_t values_;
  std::vector<torch::autograd::SavedVariable> saved_;
  std::vector<bool> computed_;
};

void runCheckpoint(const ProgramStep& step, const RunContext& context) {
  Frame& frame = context.frame;
  const bool trains = c10::GradMode::is_enabled();
  std::shared_ptr<CheckpointNode> node;
  if (trains) node = std::make_shared<CheckpointNode>(step, context);
  const StepBody& body = step.bodies.front();
  {
    const c10::AutoGradMode off(false);
    runSteps(body.steps, {frame, context.options, context.numbers, false, context.observed});
  }
  if (!trains) return;
  for (std::size_t i = 0; i < body.outputs.size(); ++i) {
    at::Tensor& output = frame[body.outputs[i].index()];
    if (!output.defined()) continue;
    output = output.detach();
    // An output without a gradient takes its place among the node's, so that gradients come by position.
    step.outputGradients[i] ? torch::autograd::set_history(output, node)
                            : static_cast<void>(node->add_input_metadata(torch::autograd::Node::undefined_input()));
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

/// Makes an argument, or a member of the list that it is, a copy of its own. A number is one.
void copyInto(c10::IValue& argument, std::size_t member) {
  if (argument.isTensor()) {
    argument = argument.toTensor().clone();
  } else if (argument.isTensorList()) {
    auto list = argument.toTensorList();
    list.set(member, list.get(member).clone());
  } else if (argument.isOptionalTensorList()) {
    auto list = argument.toOptionalTensorList();
    list.set(member, list.get(member)->clone());
  }
}

void runOperator(const ProgramStep& step, const RunContext& context) {
  Stack stack = step.constants;
  fillSlots(step.slots, stack, context.frame, context.numbers);
  if (c10::GradMode::is_enabled()) {
    for (const StateRead& read : step.changingStates) copyInto(stack[read.position], read.member);
  }
  if (context.again) {
    if (step.writesBuffer) {
      if (!step.node->outputs.empty())
        context.frame[step.node->outputs.front().index()] = context.frame[readsOf(*step.node).front().index()];
      return;
    }
    for (const std::size_t i : step.statistics) stack[i] = c10::IValue();
  }
  if (step.random) {
    const std::lock_guard lock(generatorMutex());
    at::Generator generator = at::globalContext().defaultGenerator(deviceOf(context.options.device));
    generator.set_current_seed(
        seedOf(context.options.key, static_cast<std::uint64_t>(step.id.value) + (step.inner << 32U) + (context.iteration << 44U)));
    callOperator(step, stack);
  } else {
    callOperator(step, stack);
  }
  store(*step.node, stack, context.frame, context.numbers);
  if (context.options.inspect) context.options.inspect(*step.node, context.frame);
}

void runStep(const ProgramStep& step, const RunContext& context) {
  switch (step.mode) {
    case Mode::Operator: return runOperator(step, context);
    case Mode::Checkpoint: return runCheckpoint(step, context);
    case Mode::Arithmetic: return context.numbers.set(step.node->outputs.front(), arithmetic(*step.node, context.numbers));
    case Mode::Cond: return runCond(step, context);
    case Mode::While: return runWhile(step, context);
    case Mode::Call: return runBody(step.bodies.front(), step.callInputs, step.node->outputs, context);
    case Mode::SetGradEnabled: {
      const c10::AutoGradMode mode(step.enabled && c10::GradMode::is_enabled());
      return runBody(step.bodies.front(), step.callInputs, step.node->outputs, context);
    }
    case Mode::Autocast: {
      const AutocastGuard guard(deviceOf(context.options.device).type(), step.enabled, step.autocastType);
      return runBody(step.bodies.front(), step.callInputs, step.node->outputs, context);
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
      if (!step.bodies.empty()) throw;  // the operator inside says which it is
      throw Error(describe(*step.node) + " " + e.what() + ".");
    }
    for (const ValueId value : step.drop) context.frame[value.index()].reset();
    if (context.observed && context.options.observer) context.options.observer(step.id);
  }
}

template <class Predicate>
bool anyStep(const std::vector<ProgramStep>& steps, const Predicate& predicate) {
  return std::ranges::any_of(steps, [&](const ProgramStep& step) {
    return predicate(step) || std::ranges::any_of(step.bodies, [&](const StepBody& body) { return anyStep(body.steps, predicate); });
  });
}

}  // namespace

std::vector<std::int64_t> symbolicValues(const ModelGraph& graph, const Bindings& bindings) {
  std::vector<std::int64_t> numbers(graph.values.size(), 0);
  for (std::size_t i = 0; i < graph.values.size(); ++i) {
    const auto& symbolic = graph.values[i].symbolic;
    if (symbolic) numbers[i] = knownNumber(*symbolic, bindings).value_or(kUnknownNumber);
  }
  return numbers;
}

struct NodeProgram::Impl {
  PreparedSteps prepared;
};

NodeProgram::NodeProgram(const ModelGraph& graph, const std::vector<NodeId>& nodes, const ProgramOptions& options)
    : impl_(std::make_unique<Impl>(Impl{prepareSteps(graph, nodes, options)})) {}

NodeProgram::~NodeProgram() = default;
NodeProgram::NodeProgram(NodeProgram&&) noexcept = default;

bool NodeProgram::isRandom() const {
  return anyStep(impl_->prepared.steps, [](const ProgramStep& step) { return step.random; });
}

bool NodeProgram::dependsOnData() const {
  return anyStep(impl_->prepared.steps, [](const ProgramStep& step) { return step.readsData; });
}

const std::vector<ValueId>& NodeProgram::addedByAutograd() const { return impl_->prepared.addedByAutograd; }

void NodeProgram::run(Frame& frame, const RunOptions& options) const {
  const auto autocast = autocastOf(options);
  Numbers numbers(*options.symbolic);
  runSteps(impl_->prepared.steps, {frame, options, numbers});
}

}  // namespace pw
