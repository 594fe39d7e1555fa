#include "backends/torch/program/symbolic_numbers.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <variant>

#include "backends/torch/program/arguments.h"
#include "schedules/error.h"

namespace pw {
namespace {

/// An operation on two numbers.
enum class Operation : std::uint8_t { Add, Sub, Mul, FloorDiv, TrueDiv, Mod, Pow, And, Or, Xor, LeftShift, RightShift };

/// Another function of numbers.
enum class Function : std::uint8_t { Neg, Pos, Eq, Ne, Lt, Le, Gt, Ge, Not, Max, Min, Ite, Int, Float, Trunc, Floor, Ceil, Sqrt, Sum };

struct Known {
  std::string_view name;
  std::variant<Operation, Function> function;
  std::size_t operands;  // 0: any number
};

/// torch/_export/serde/serialize.py, `_SYM_OPS`, without their modules.
constexpr std::array<Known, 36> kFunctions{{
    {"add", Operation::Add, 2},
    {"sub", Operation::Sub, 2},
    {"mul", Operation::Mul, 2},
    {"floordiv", Operation::FloorDiv, 2},
    {"truediv", Operation::TrueDiv, 2},
    {"mod", Operation::Mod, 2},
    {"pow", Operation::Pow, 2},
    {"and_", Operation::And, 2},
    {"or_", Operation::Or, 2},
    {"xor", Operation::Xor, 2},
    {"lshift", Operation::LeftShift, 2},
    {"rshift", Operation::RightShift, 2},
    {"neg", Function::Neg, 1},
    {"pos", Function::Pos, 1},
    {"eq", Function::Eq, 2},
    {"ne", Function::Ne, 2},
    {"lt", Function::Lt, 2},
    {"le", Function::Le, 2},
    {"gt", Function::Gt, 2},
    {"ge", Function::Ge, 2},
    {"not_", Function::Not, 1},
    {"sym_not", Function::Not, 1},
    {"sym_max", Function::Max, 2},
    {"sym_min", Function::Min, 2},
    {"sym_ite", Function::Ite, 3},
    {"sym_int", Function::Int, 1},
    {"sym_float", Function::Float, 1},
    {"sym_sqrt", Function::Sqrt, 1},
    {"_sym_sqrt", Function::Sqrt, 1},
    {"trunc", Function::Trunc, 1},
    {"floor", Function::Floor, 1},
    {"ceil", Function::Ceil, 1},
    {"sqrt", Function::Sqrt, 1},
    {"sym_sum", Function::Sum, 0},
    {"max", Function::Max, 2},
    {"min", Function::Min, 2},
}};

const Known* knownOf(const Node& node) {
  const std::string_view name = std::string_view(node.target).substr(node.target.rfind('.') + 1);
  const auto* found = std::find_if(kFunctions.begin(), kFunctions.end(), [&](const Known& known) { return known.name == name; });
  return found == kFunctions.end() ? nullptr : found;
}

bool isInteger(const Number& n) { return std::holds_alternative<std::int64_t>(n); }
bool isNonzero(const Number& n) { return asDouble(n) != 0; }
Number truth(bool holds) { return std::int64_t{holds ? 1 : 0}; }

[[noreturn]] void failOverflow() { throw Error("computes an integer beyond 64 bits"); }

std::int64_t wholeOf(double number) {
  if (!(number >= -9.2e18 && number <= 9.2e18)) failOverflow();
  return static_cast<std::int64_t>(number);
}

std::int64_t floorDivide(std::int64_t a, std::int64_t b) {
  if (b == 0) throw Error("divides by zero");
  if (b == -1) {
    std::int64_t negated = 0;
    if (__builtin_sub_overflow(std::int64_t{0}, a, &negated)) failOverflow();
    return negated;
  }
  const std::int64_t quotient = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}

std::int64_t power(std::int64_t base, std::int64_t exponent) {
  std::int64_t value = 1;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(value, base, &value)) failOverflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) failOverflow();
  }
  return value;
}

Number ofIntegers(Operation operation, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  switch (operation) {
    case Operation::Add: overflows = __builtin_add_overflow(a, b, &result); break;
    case Operation::Sub: overflows = __builtin_sub_overflow(a, b, &result); break;
    case Operation::Mul: overflows = __builtin_mul_overflow(a, b, &result); break;
    case Operation::FloorDiv: return floorDivide(a, b);
    case Operation::TrueDiv: break;  // gives no integer: see `combined`
    case Operation::Mod: return b == -1 ? 0 : a - floorDivide(a, b) * b;
    case Operation::Pow: return power(a, b);
    case Operation::And: return a & b;
    case Operation::Or: return a | b;
    case Operation::Xor: return a ^ b;
    case Operation::LeftShift: {
      if (b < 0 || b > 62) failOverflow();
      overflows = __builtin_mul_overflow(a, std::int64_t{1} << b, &result);
      break;
    }
    case Operation::RightShift:
      if (b < 0) throw Error("shifts by a negative number");
      return a >> std::min<std::int64_t>(b, 63);
  }
  if (overflows) failOverflow();
  return result;
}

Number ofDoubles(Operation operation, double a, double b) {
  if ((operation == Operation::FloorDiv || operation == Operation::Mod || operation == Operation::TrueDiv) && b == 0)
    throw Error("divides by zero");
  switch (operation) {
    case Operation::Add: return a + b;
    case Operation::Sub: return a - b;
    case Operation::Mul: return a * b;
    case Operation::FloorDiv: return std::floor(a / b);
    case Operation::TrueDiv: return a / b;
    case Operation::Mod: return a - std::floor(a / b) * b;
    case Operation::Pow: return std::pow(a, b);
    case Operation::And:
    case Operation::Or:
    case Operation::Xor:
    case Operation::LeftShift:
    case Operation::RightShift: break;
  }
  throw Error("calls a function of integers with a floating point number");
}

/// Integers stay integers but for `/` and negative powers.
Number combined(Operation operation, const Number& a, const Number& b) {
  if (!isInteger(a) || !isInteger(b) || operation == Operation::TrueDiv) return ofDoubles(operation, asDouble(a), asDouble(b));
  const std::int64_t left = std::get<std::int64_t>(a), right = std::get<std::int64_t>(b);
  if (operation == Operation::Pow && right < 0) return ofDoubles(operation, static_cast<double>(left), static_cast<double>(right));
  return ofIntegers(operation, left, right);
}

bool less(const Number& a, const Number& b) {
  return isInteger(a) && isInteger(b) ? std::get<std::int64_t>(a) < std::get<std::int64_t>(b) : asDouble(a) < asDouble(b);
}

Number called(Function function, const std::vector<Number>& operands) {
  const Number& a = operands.front();
  const Number& b = operands.size() > 1 ? operands[1] : a;
  const auto rounded = [&](double (*round)(double)) { return isInteger(a) ? a : Number(wholeOf(round(std::get<double>(a)))); };
  switch (function) {
    case Function::Neg: return combined(Operation::Sub, std::int64_t{0}, a);
    case Function::Pos: return a;
    case Function::Eq: return truth(!less(a, b) && !less(b, a));
    case Function::Ne: return truth(less(a, b) || less(b, a));
    case Function::Lt: return truth(less(a, b));
    case Function::Le: return truth(!less(b, a));
    case Function::Gt: return truth(less(b, a));
    case Function::Ge: return truth(!less(a, b));
    case Function::Not: return truth(!isNonzero(a));
    case Function::Max: return less(a, b) ? b : a;
    case Function::Min: return less(b, a) ? b : a;
    case Function::Ite: return isNonzero(a) ? operands.at(1) : operands.at(2);
    case Function::Int:
    case Function::Trunc: return rounded([](double x) { return std::trunc(x); });
    case Function::Floor: return rounded([](double x) { return std::floor(x); });
    case Function::Ceil: return rounded([](double x) { return std::ceil(x); });
    case Function::Float: return asDouble(a);
    case Function::Sqrt: return std::sqrt(asDouble(a));
    case Function::Sum: break;
  }
  Number sum = std::int64_t{0};
  for (const Number& operand : operands) sum = combined(Operation::Add, sum, operand);
  return sum;
}

/// Numbers of an argument: one, or those of a list.
void append(const Argument& argument, const Numbers& numbers, std::vector<Number>& operands) {
  const auto of = [&](ValueId value) {
    const auto number = numbers.find(value);
    if (!number) throw Error("takes a number that depends on data and was not computed on this stage; move the split point");
    operands.push_back(*number);
  };
  if (const auto* value = std::get_if<ValueId>(&argument)) return of(*value);
  if (const auto* number = std::get_if<std::int64_t>(&argument)) return operands.emplace_back(*number), void();
  if (const auto* number = std::get_if<double>(&argument)) return operands.emplace_back(*number), void();
  if (const auto* number = std::get_if<bool>(&argument)) return operands.push_back(truth(*number));
  if (const auto* list = std::get_if<std::vector<std::int64_t>>(&argument)) {
    for (const std::int64_t number : *list) operands.emplace_back(number);
    return;
  }
  if (const auto* list = std::get_if<std::vector<IntOrValue>>(&argument)) {
    for (const IntOrValue& element : *list) {
      const auto* value = std::get_if<ValueId>(&element);
      value != nullptr ? of(*value) : static_cast<void>(operands.emplace_back(std::get<std::int64_t>(element)));
    }
    return;
  }
  throw Error("takes something other than numbers");
}

}  // namespace

double asDouble(const Number& number) {
  return std::visit([](auto n) { return static_cast<double>(n); }, number);
}

std::optional<Number> Numbers::find(ValueId value) const {
  const auto found = computed_.find(value.value);
  if (found != computed_.end()) return found->second;
  const std::int64_t known = (*known_)[value.index()];
  return known == kUnknownNumber ? std::nullopt : std::optional<Number>(known);
}

void Numbers::copy(ValueId from, ValueId to) {
  if (const auto number = find(from)) set(to, *number);
}

bool isArithmetic(const Node& node) { return node.target.rfind("torch.ops.", 0) != 0; }

void requireKnownArithmetic(const Node& node) {
  const Known* known = knownOf(node);
  if (known != nullptr && (known->operands == 0 || node.inputs.size() == known->operands)) return;
  throw UsageError(
      describe(node) +
      " computes a number that depends on data by a function that Pipewright does not know; compute it with tensors before exporting.");
}

Number arithmetic(const Node& node, const Numbers& numbers) {
  const Known& known = *knownOf(node);
  std::vector<Number> operands;
  for (const NamedArgument& input : node.inputs) append(input.value, numbers, operands);
  if (known.operands > operands.size()) throw Error("lacks an operand");
  if (const auto* operation = std::get_if<Operation>(&known.function)) return combined(*operation, operands[0], operands[1]);
  return operands.empty() ? Number(std::int64_t{0}) : called(std::get<Function>(known.function), operands);
}

}  // namespace pw
