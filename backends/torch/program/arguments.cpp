#include "backends/torch/program/arguments.h"

#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>

#include "backends/torch/program/types.h"
#include "schedules/error.h"

namespace pw {
namespace {

using Stack = std::vector<c10::IValue>;

/// A Python number given for a tensor argument takes part in type promotion as a number, not as a tensor.
at::Tensor wrappedNumber(const at::Scalar& number) {
  const at::ScalarType type = number.isComplex()         ? at::kComplexDouble
                              : number.isFloatingPoint() ? at::kDouble
                              : number.isBoolean()       ? at::kBool
                                                         : at::kLong;
  at::Tensor tensor = at::scalar_tensor(number, type);
  tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
  return tensor;
}

const c10::Type& unwrapOptional(const c10::Type& type) {
  const auto* optional = type.castRaw<c10::OptionalType>();
  return optional == nullptr ? type : *optional->getElementType();
}

/// How a number is given to an argument of this type.
Slot::Kind kindOf(c10::TypeKind type) {
  if (type == c10::TypeKind::FloatType) return Slot::Kind::Double;
  if (type == c10::TypeKind::BoolType) return Slot::Kind::Boolean;
  return type == c10::TypeKind::NumberType ? Slot::Kind::Scalar : Slot::Kind::Integer;
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
    if (wantsList())
      return slot(Slot::Kind::IntegerList, std::vector<std::optional<ValueId>>(static_cast<std::size_t>(count_), id),
                  std::vector<std::int64_t>(static_cast<std::size_t>(count_), 0));
    slot(kindOf(type_->kind()), {id});
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
  void push(const ScalarTypeArg& v) { stack_.emplace_back(static_cast<std::int64_t>(scalarType(v.dtype))); }
  void push(const MemoryFormatArg& v) { stack_.emplace_back(static_cast<std::int64_t>(memoryFormat(v.code))); }
  void push(const LayoutArg& v) {
    if (v.code != 7)
      throw UsageError(describe(node_) + " uses a sparse layout, which Pipewright cannot run; make it dense before exporting.");
    stack_.emplace_back(static_cast<std::int64_t>(c10::Layout::Strided));
  }
  void push(const DeviceArg&) { stack_.emplace_back(c10::Device(c10::kCPU)); }
  void push(const ComplexArg& v) {
    const c10::complex<double> number(v.real, v.imaginary);
    wantsTensor() ? stack_.emplace_back(wrappedNumber(number)) : stack_.emplace_back(number);
  }
  void push(const GraphArg&) { throw UsageError(describe(node_) + " takes a sub-graph that Pipewright cannot run."); }

  const ModelGraph& graph_;
  const Node& node_;
  Stack& stack_;
  std::vector<Slot>& slots_;
  const c10::Type* type_ = nullptr;
  std::int32_t count_ = 1;
};

Number known(const Numbers& numbers, ValueId value) {
  const auto number = numbers.find(value);
  if (!number) throw Error("takes a number or size that depends on data and was not computed on this stage; move the split point");
  return *number;
}

std::int64_t knownInteger(const Numbers& numbers, ValueId value) {
  const Number number = known(numbers, value);
  if (const auto* integer = std::get_if<std::int64_t>(&number)) return *integer;
  throw Error("takes an integer, and got a floating point number");
}

at::Scalar scalarOf(const Number& number) {
  return std::visit([](auto n) { return at::Scalar(n); }, number);
}

c10::IValue valueOf(const Number& number) {
  return std::visit([](auto n) { return c10::IValue(n); }, number);
}

}  // namespace

std::string describe(const Node& node) {
  std::string where = "operator " + node.target;
  if (!node.modules.empty() && !node.modules.back().path.empty()) where += " in module " + node.modules.back().path;
  if (!node.sourceLine.empty()) where += " (" + node.sourceLine + ")";
  return where;
}

void bindArgument(const ModelGraph& graph, const Node& node, const c10::Argument& schema, const Argument& argument,
                  std::vector<c10::IValue>& stack, std::vector<Slot>& slots) {
  ArgumentBinder(graph, node, stack, slots).bind(schema, argument);
}

void fillSlots(const std::vector<Slot>& slots, Stack& stack, const Frame& frame, const Numbers& numbers) {
  for (const Slot& slot : slots) {
    c10::IValue& target = stack[slot.position];
    switch (slot.kind) {
      case Slot::Kind::Tensor: target = frame[slot.values[0]->index()]; break;
      case Slot::Kind::Integer: target = knownInteger(numbers, *slot.values[0]); break;
      case Slot::Kind::Boolean: target = asDouble(known(numbers, *slot.values[0])) != 0; break;
      case Slot::Kind::Scalar: target = valueOf(known(numbers, *slot.values[0])); break;
      case Slot::Kind::Double: target = asDouble(known(numbers, *slot.values[0])); break;
      case Slot::Kind::NumberAsTensor: target = wrappedNumber(scalarOf(known(numbers, *slot.values[0]))); break;
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
          list.push_back(slot.values[i] ? knownInteger(numbers, *slot.values[i]) : slot.numbers[i]);
        }
        target = std::move(list);
        break;
      }
    }
  }
}

}  // namespace pw
