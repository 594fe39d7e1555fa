#include "backends/torch_program.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/GradMode.h>

#include <limits>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "schedules/error.h"

namespace pw {
namespace {

constexpr std::int64_t kUnknownNumber = std::numeric_limits<std::int64_t>::min();

using Stack = std::vector<c10::IValue>;

std::string describe(const Node& node) {
  std::string where = "operator " + node.target;
  if (!node.modules.empty() && !node.modules.back().path.empty()) where += " in module " + node.modules.back().path;
  if (!node.sourceLine.empty()) where += " (" + node.sourceLine + ")";
  return where;
}

/// A stack position to be filled with values of the frame at each run.
struct Slot {
  std::size_t position = 0;
  enum class Kind : std::uint8_t { Tensor, TensorList, OptionalTensorList, Integer, IntegerList, NumberAsTensor } kind = Kind::Tensor;
  std::vector<std::optional<ValueId>> values;
  std::vector<std::int64_t> numbers;  // IntegerList: literals where `values` has none
};

/// A Python number given for a tensor argument takes part in type promotion as a number, not as a tensor.
at::Tensor wrappedNumber(const at::Scalar& number) {
  at::Tensor tensor = at::scalar_tensor(number, number.isFloatingPoint() ? at::kDouble : number.isBoolean() ? at::kBool : at::kLong);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

const c10::Type& unwrapOptional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

c10::MemoryFormat memoryFormat(int code) {
  switch (code) {
    case 2: return c10::MemoryFormat::ChannelsLast;
    case 3: return c10::MemoryFormat::ChannelsLast3d;
    case 4: return c10::MemoryFormat::Preserve;
    default: return c10::MemoryFormat::Contiguous;
  }
}

/// Turns archive arguments into the constants and slots of one operator call.
class ArgumentBinder {
 public:
  ArgumentBinder(const ModelGraph& graph, const Node& node, Stack& stack, std::vector<Slot>& slots)
      : graph_(graph), node_(node), stack_(stack), slots_(slots) {}

  void bind(const c10::Argument& schema, const Argument& argument) {
    type_ = &unwrapOptional(*schema.real_type());
    count_ = schema.N().value_or(1);
    std::visit([this](const auto& v) { push(v); }, argument);
  }

 private:
  [[nodiscard]] bool wantsTensor() const { return type_->kind() == c10::TypeKind::TensorType; }
  [[nodiscard]] bool wantsFloat() const { return type_->kind() == c10::TypeKind::FloatType; }
  [[nodiscard]] bool wantsList() const { return type_->kind() == c10::TypeKind::ListType; }
  [[nodiscard]] c10::TypeKind elementKind() const {
    const auto* list = type_->castRaw<c10::ListType>();
    return list == nullptr ? c10::TypeKind::AnyType : unwrapOptional(*list->getElementType()).kind();
  }
  void slot(Slot::Kind kind, std::vector<std::optional<ValueId>> values, std::vector<std::int64_t> numbers = {}) {
    slots_.push_back({stack_.size(), kind, std::move(values), std::move(numbers)});
    stack_.emplace_back();
  }
  [[nodiscard]] bool isSymbolic(ValueId id) const { return graph_.value(id).symbolic.has_value(); }

  void push(const NoneArg&) { stack_.emplace_back(); }
  void push(ValueId id) {
    if (!isSymbolic(id)) return slot(Slot::Kind::Tensor, {id});
    if (wantsTensor()) return slot(Slot::Kind::NumberAsTensor, {id});
    if (wantsList()) return slot(Slot::Kind::IntegerList, std::vector<std::optional<ValueId>>(static_cast<std::size_t>(count_), id),
                                 std::vector<std::int64_t>(static_cast<std::size_t>(count_), 0));
    slot(Slot::Kind::Integer, {id});
  }
  void push(const std::vector<ValueId>& ids) {
    std::vector<std::optional<ValueId>> values(ids.begin(), ids.end());
    const auto* list = type_->castRaw<c10::ListType>();
    const bool optionalElements = list != nullptr && list->getElementType()->kind() == c10::TypeKind::OptionalType;
    slot(optionalElements ? Slot::Kind::OptionalTensorList : Slot::Kind::TensorList, std::move(values));
  }
  void push(const std::vector<std::optional<ValueId>>& ids) { slot(Slot::Kind::OptionalTensorList, ids); }
  void push(std::int64_t v) {
    if (wantsTensor()) {
      stack_.emplace_back(wrappedNumber(v));
    } else if (wantsFloat()) {
      stack_.emplace_back(static_cast<double>(v));
    } else if (wantsList()) {
      push(std::vector<std::int64_t>(static_cast<std::size_t>(count_), v));
    } else {
      stack_.emplace_back(v);
    }
  }
  void push(const std::vector<std::int64_t>& v) {
    if (elementKind() == c10::TypeKind::FloatType) return push(std::vector<double>(v.begin(), v.end()));
    if (elementKind() == c10::TypeKind::BoolType) return push(std::vector<bool>(v.begin(), v.end()));
    if (elementKind() == c10::TypeKind::TensorType) return push(std::vector<ValueId>());  // an empty list has no type of its own
    stack_.emplace_back(v);
  }
  void push(const std::vector<IntOrValue>& v) {
    std::vector<std::optional<ValueId>> values;
    std::vector<std::int64_t> numbers;
    for (const IntOrValue& element : v) {
      const auto* id = std::get_if<ValueId>(&element);
      values.push_back(id == nullptr ? std::nullopt : std::optional<ValueId>(*id));
      numbers.push_back(id == nullptr ? std::get<std::int64_t>(element) : 0);
    }
    slot(Slot::Kind::IntegerList, std::move(values), std::move(numbers));
  }
  void push(double v) { wantsTensor() ? stack_.emplace_back(wrappedNumber(v)) : stack_.emplace_back(v); }
  void push(const std::vector<double>& v) { stack_.emplace_back(v); }
  void push(bool v) { wantsTensor() ? stack_.emplace_back(wrappedNumber(v)) : stack_.emplace_back(v); }
  void push(const std::vector<bool>& v) {
    c10::List<bool> list;
    for (const bool b : v) list.push_back(b);
    stack_.emplace_back(list);
  }
  void push(const std::string& v) { stack_.emplace_back(v); }
  void push(const std::vector<std::string>& v) { stack_.emplace_back(v); }
  void push(const ScalarTypeArg& v) { stack_.emplace_back(static_cast<std::int64_t>(v.dtype) - 1); }
  void push(const MemoryFormatArg& v) { stack_.emplace_back(static_cast<std::int64_t>(memoryFormat(v.code))); }
  void push(const LayoutArg& v) {
    if (v.code != 7) throw UsageError(describe(node_) + " uses a sparse layout, which Pipewright cannot run; make it dense before exporting.");
    stack_.emplace_back(static_cast<std::int64_t>(c10::Layout::Strided));
  }
  void push(const DeviceArg&) { stack_.emplace_back(c10::Device(c10::kCPU)); }
  void push(const ComplexArg& v) { stack_.emplace_back(c10::complex<double>(v.real, v.imaginary)); }
  void push(const GraphArg&) { throw UsageError(describe(node_) + " takes a sub-graph that Pipewright cannot run."); }

  const ModelGraph& graph_;
  const Node& node_;
  Stack& stack_;
  std::vector<Slot>& slots_;
  const c10::Type* type_ = nullptr;
  std::int32_t count_ = 1;
};

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

std::int64_t known(std::int64_t number) {
  if (number == kUnknownNumber) throw Error("has a size that depends on data, which Pipewright cannot run; make the size static before exporting");
  return number;
}

void fill(const ProgramStep& step, Stack& stack, const Frame& frame, const std::vector<std::int64_t>& symbolic) {
  for (const Slot& slot : step.slots) {
    c10::IValue& target = stack[slot.position];
    switch (slot.kind) {
      case Slot::Kind::Tensor: target = frame[slot.values[0]->index()]; break;
      case Slot::Kind::Integer: target = known(symbolic[slot.values[0]->index()]); break;
      case Slot::Kind::NumberAsTensor: target = wrappedNumber(known(symbolic[slot.values[0]->index()])); break;
      case Slot::Kind::TensorList: {
        c10::List<at::Tensor> list;
        for (const auto& value : slot.values) list.push_back(frame[value->index()]);
        target = std::move(list);
        break;
      }
      case Slot::Kind::OptionalTensorList: {
        c10::List<std::optional<at::Tensor>> list;
        for (const auto& value : slot.values) list.push_back(value ? std::optional<at::Tensor>(frame[value->index()]) : std::nullopt);
        target = std::move(list);
        break;
      }
      case Slot::Kind::IntegerList: {
        c10::List<std::int64_t> list;
        for (std::size_t i = 0; i < slot.values.size(); ++i) {
          list.push_back(slot.values[i] ? known(symbolic[slot.values[i]->index()]) : slot.numbers[i]);
        }
        target = std::move(list);
        break;
      }
    }
  }
}

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
  ArgumentBinder binder(graph, node, step.constants, step.slots);
  std::unordered_map<std::string, const Argument*> given;
  for (const NamedArgument& argument : node.inputs) given.emplace(argument.name, &argument.value);
  for (const c10::Argument& argument : step.op->schema().arguments()) {
    const auto found = given.find(argument.name());
    if (found != given.end()) {
      binder.bind(argument, *found->second);
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
    step.autocastType = dtype == nullptr ? at::kBFloat16 : static_cast<at::ScalarType>(static_cast<int>(dtype->dtype) - 1);
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
      fill(step, stack, context.frame, context.symbolic);
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
