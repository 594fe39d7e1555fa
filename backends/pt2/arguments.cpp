#include "backends/pt2/arguments.h"

#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "schedules/error.h"

namespace pw::pt2 {
namespace {

/// Reads one argument; each method takes the kinds of one shape and gives nothing for others.
class ArgumentReader {
 public:
  ArgumentReader(const Tagged& argument, const Scope& scope, NameResolver& resolver, const std::string& where)
      : kind_(argument.kind), value_(argument.value), scope_(scope), resolver_(resolver), where_(where) {}

  Argument read() {
    for (const auto method : {&ArgumentReader::plain, &ArgumentReader::graphValue, &ArgumentReader::torchConstant, &ArgumentReader::list,
                              &ArgumentReader::valueList}) {
      if (std::optional<Argument> argument = (this->*method)()) {
        return std::move(*argument);
      }
    }
    throw UsageError(
        fmt::format("{} has an argument of kind {}, which Pipewright does not support; rewrite that part of the model with "
                    "tensors and numbers",
                    where_, kind_));
  }

 private:
  using Found = std::optional<Argument>;

  [[nodiscard]] ValueId named(const Json& holder, const char* key) const {
    return resolver_.resolve(scope_, asText(member(holder, key, where_), key, where_), where_);
  }

  /// `{"as_name": …}` → the value; else nothing, and the caller reads the literal.
  [[nodiscard]] std::optional<ValueId> symbol(const Tagged& tagged) const {
    if (tagged.kind != "as_name") {
      return std::nullopt;
    }
    return resolver_.resolve(scope_, asText(tagged.value, "as_name", where_), where_);
  }

  [[nodiscard]] std::optional<ValueId> optionalTensor(const Json& element) const {
    const Tagged tagged = asTagged(element, kind_, where_);
    if (tagged.kind == "as_none") {
      return std::nullopt;
    }
    return named(tagged.value, "name");
  }

  [[nodiscard]] int code() const {
    const std::int64_t number = asInteger(value_, kind_, where_);
    if (number < 0 || number > std::numeric_limits<int>::max()) {
      damaged(where_, fmt::format("has a code out of range in `{}`", kind_));
    }
    return static_cast<int>(number);
  }

  Found plain() {
    if (kind_ == "as_none") {
      return NoneArg{};
    }
    if (kind_ == "as_int") {
      return asInteger(value_, kind_, where_);
    }
    if (kind_ == "as_float") {
      return asNumber(value_, kind_, where_);
    }
    if (kind_ == "as_bool") {
      return asBool(value_, kind_, where_);
    }
    if (kind_ == "as_string") {
      return asText(value_, kind_, where_);
    }
    if (kind_ == "as_complex") {
      return ComplexArg{asNumber(member(value_, "real", where_), "real", where_), asNumber(member(value_, "imag", where_), "imag", where_)};
    }
    return std::nullopt;
  }

  Found graphValue() {
    if (kind_ == "as_tensor") {
      return named(value_, "name");
    }
    if (kind_ == "as_optional_tensor") {
      const std::optional<ValueId> id = optionalTensor(value_);
      return id ? Argument(*id) : Argument(NoneArg{});
    }
    if (kind_ != "as_sym_int" && kind_ != "as_sym_float" && kind_ != "as_sym_bool") {
      return std::nullopt;
    }
    const Tagged tagged = asTagged(value_, kind_, where_);
    if (const std::optional<ValueId> id = symbol(tagged)) {
      return *id;
    }
    if (kind_ == "as_sym_float") {
      return asNumber(tagged.value, kind_, where_);
    }
    return kind_ == "as_sym_bool" ? Argument(asBool(tagged.value, kind_, where_)) : Argument(asInteger(tagged.value, kind_, where_));
  }

  Found torchConstant() {
    if (kind_ == "as_scalar_type") {
      return ScalarTypeArg{asDType(value_, where_)};
    }
    if (kind_ == "as_memory_format") {
      return MemoryFormatArg{code()};
    }
    if (kind_ == "as_layout") {
      return LayoutArg{code()};
    }
    if (kind_ == "as_device") {
      return DeviceArg{asText(member(value_, "type", where_), "type", where_)};
    }
    return std::nullopt;
  }

  template <class Element, class Read>
  [[nodiscard]] std::vector<Element> elements(const Read& readElement) const {
    std::vector<Element> result;
    for (const Json& element : asArray(value_, kind_, where_)) {
      result.push_back(readElement(element));
    }
    return result;
  }

  Found list() {
    if (kind_ == "as_ints") {
      return elements<std::int64_t>([&](const Json& element) { return asInteger(element, kind_, where_); });
    }
    if (kind_ == "as_floats") {
      return elements<double>([&](const Json& element) { return asNumber(element, kind_, where_); });
    }
    if (kind_ == "as_bools") {
      return elements<bool>([&](const Json& element) { return asBool(element, kind_, where_); });
    }
    if (kind_ == "as_strings") {
      return elements<std::string>([&](const Json& element) { return asText(element, kind_, where_); });
    }
    return std::nullopt;
  }

  Found valueList() {
    if (kind_ == "as_tensors") {
      return elements<ValueId>([&](const Json& element) { return named(element, "name"); });
    }
    if (kind_ == "as_optional_tensors") {
      return elements<std::optional<ValueId>>([&](const Json& element) { return optionalTensor(element); });
    }
    if (kind_ == "as_sym_ints") {
      return elements<IntOrValue>([&](const Json& element) {
        const Tagged tagged = asTagged(element, kind_, where_);
        const std::optional<ValueId> id = symbol(tagged);
        return id ? IntOrValue(*id) : IntOrValue(asInteger(tagged.value, kind_, where_));
      });
    }
    return std::nullopt;
  }

  const std::string_view kind_;
  const Json& value_;
  const Scope& scope_;
  NameResolver& resolver_;
  const std::string& where_;
};

/// `as_sym_int` → the table of symbolic integers, and so on; nullptr for other kinds.
const char* symbolTable(std::string_view kind) {
  if (kind == "as_sym_int") {
    return "sym_int_values";
  }
  if (kind == "as_sym_bool") {
    return "sym_bool_values";
  }
  return kind == "as_sym_float" ? "sym_float_values" : nullptr;
}

SymbolicInt describeSymbol(const Scope& scope, const char* table, const std::string& name, const std::string& where) {
  const Json& entry = member(member(scope.graph, table, where), name.c_str(), where);
  return asSymbolic(entry, table, where);
}

}  // namespace

Argument readArgument(const Tagged& argument, const Scope& scope, NameResolver& resolver, const std::string& where) {
  return ArgumentReader(argument, scope, resolver, where).read();
}

Value describe(const Scope& scope, const Tagged& argument, ValueOrigin origin, const std::string& where) {
  Value value;
  value.origin = origin;
  if (argument.kind == "as_none") {
    return value;
  }
  if (argument.kind == "as_tensor") {
    value.name = asText(member(argument.value, "name", where), "name", where);
    const Json& tensors = member(scope.graph, "tensor_values", where);
    const Json* meta = optionalMember(tensors, value.name.c_str(), where);
    if (meta != nullptr) {
      value.tensor = asTensorMeta(*meta, fmt::format("{}, tensor `{}`,", where, value.name));
    } else if (value.name.empty() || value.name.find("_unused_") != std::string::npos) {
      value.tensor = TensorMeta{};  // a result that nobody uses: torch may leave its type out
    } else {
      damaged(where, fmt::format("names a tensor `{}` without type and size", value.name));
    }
    return value;
  }
  if (const char* table = symbolTable(argument.kind)) {
    const Tagged symbol = asTagged(argument.value, argument.kind, where);
    if (symbol.kind == "as_name") {
      value.name = asText(symbol.value, "as_name", where);
      value.symbolic = describeSymbol(scope, table, value.name, where);
    } else {
      value.symbolic = asSymbolic(argument.value, argument.kind, where);
    }
    return value;
  }
  if (argument.kind == "as_int") {
    value.symbolic = SymbolicInt{asInteger(argument.value, argument.kind, where), {}};
    return value;
  }
  throw UsageError(
      fmt::format("{} has an input or result of kind {}, which Pipewright does not support; rewrite that part of the model "
                  "with tensors",
                  where, argument.kind));
}

}  // namespace pw::pt2
