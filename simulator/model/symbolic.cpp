#include "simulator/model/symbolic.h"

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <cctype>
#include <functional>
#include <limits>
#include <numeric>
#include <ranges>
#include <set>
#include <utility>
#include <vector>

#include "schedules/error.h"

namespace pw {
namespace {

/// Deeper nesting than any exporter writes; keeps a hostile text from exhausting the stack.
constexpr int kDepthLimit = 64;

/// Evaluates sympy's `srepr` text by recursive descent. The first failure ends it: what is left is skipped, and the result is nothing.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Bindings& bindings) : text_(text), bindings_(bindings) {}

  std::optional<std::int64_t> run() {
    const std::int64_t value = expression(0);
    skipSpace();
    if (position_ != text_.size()) fail("has trailing text");
    return why_.empty() ? std::optional(value) : std::nullopt;
  }

  /// Why `run` gave nothing.
  [[nodiscard]] const std::string& why() const { return why_; }

 private:
  /// Stands for the value that there is none of.
  std::int64_t fail(std::string_view why) {
    if (why_.empty()) why_ = fmt::format("the size expression `{}` {}", text_.substr(0, 200), why);
    position_ = text_.size();
    return 0;
  }

  void skipSpace() {
    while (position_ < text_.size() && text_[position_] == ' ') {
      ++position_;
    }
  }

  bool accept(char wanted) {
    skipSpace();
    if (position_ < text_.size() && text_[position_] == wanted) {
      ++position_;
      return true;
    }
    return false;
  }

  void expect(char wanted) {
    if (!accept(wanted)) {
      fail(fmt::format("lacks a `{}` at position {}", wanted, position_));
    }
  }

  std::string_view word() {
    skipSpace();
    const std::size_t start = position_;
    while (position_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[position_])) != 0 || text_[position_] == '_')) {
      ++position_;
    }
    return text_.substr(start, position_ - start);
  }

  std::int64_t literal() {
    const bool negative = accept('-');
    const std::string_view digits = word();
    if (digits.empty()) {
      return fail(fmt::format("lacks a number at position {}", position_));
    }
    std::int64_t value = 0;
    for (const char digit : digits) {
      if (digit < '0' || digit > '9') {
        return fail(fmt::format("has `{}` instead of a number", digits));
      }
      const std::int64_t number = digit - '0';
      if (__builtin_mul_overflow(value, 10, &value) ||
          (negative ? __builtin_sub_overflow(value, number, &value) : __builtin_add_overflow(value, number, &value))) {
        return fail("exceeds 64 bits");
      }
    }
    return value;
  }

  /// After `Symbol(`: the quoted name and assumptions up to the closing parenthesis.
  std::int64_t symbol() {
    skipSpace();
    const char quote = position_ < text_.size() ? text_[position_] : '\0';
    if (quote != '\'' && quote != '"') {
      return fail("has a symbol without a name");
    }
    const std::size_t end = text_.find(quote, position_ + 1);
    const std::size_t close = end == std::string_view::npos ? end : text_.find(')', end);
    if (close == std::string_view::npos) {
      return fail("has an unterminated symbol");
    }
    const std::string name(text_.substr(position_ + 1, end - position_ - 1));
    position_ = close + 1;
    const auto found = bindings_.find(name);
    if (found == bindings_.end()) {
      return fail(fmt::format("needs `{}`, which no input size gives (data-dependent sizes cannot be planned)", name));
    }
    return found->second;
  }

  std::int64_t expression(int depth) {
    if (depth > kDepthLimit) {
      return fail("is nested too deeply");
    }
    skipSpace();
    if (position_ < text_.size() && (text_[position_] == '-' || std::isdigit(static_cast<unsigned char>(text_[position_])) != 0)) {
      return literal();
    }
    const std::string_view function = word();
    if (function == "true" || function == "false") {
      return function == "true" ? 1 : 0;
    }
    if (function.empty() || !accept('(')) {
      return fail(fmt::format("is not understood at position {}", position_));
    }
    if (function == "Symbol") {
      return symbol();
    }
    if (function == "Integer") {
      const std::int64_t value = literal();
      expect(')');
      return value;
    }
    std::vector<std::int64_t> arguments;
    if (!accept(')')) {
      do {
        arguments.push_back(expression(depth + 1));
      } while (accept(','));
      expect(')');
    }
    return why_.empty() ? apply(function, arguments) : 0;
  }

  std::int64_t apply(std::string_view function, const std::vector<std::int64_t>& arguments) {
    if (arguments.empty()) {
      return fail(fmt::format("calls `{}` without arguments", function));
    }
    if (function == "Add" || function == "Mul" || function == "Max" || function == "Min") {
      std::int64_t value = arguments.front();
      for (std::size_t i = 1; i < arguments.size(); ++i) {
        value = fold(function, value, arguments[i]);
      }
      return value;
    }
    if (arguments.size() != 2) {
      return fail(fmt::format("calls `{}` with {} arguments, which is not understood", function, arguments.size()));
    }
    return binary(function, arguments[0], arguments[1]);
  }

  std::int64_t fold(std::string_view function, std::int64_t a, std::int64_t b) {
    if (function == "Max") {
      return std::max(a, b);
    }
    if (function == "Min") {
      return std::min(a, b);
    }
    std::int64_t value = 0;
    const bool overflows = function == "Add" ? __builtin_add_overflow(a, b, &value) : __builtin_mul_overflow(a, b, &value);
    return overflows ? fail("exceeds 64 bits") : value;
  }

  std::int64_t binary(std::string_view function, std::int64_t a, std::int64_t b) {
    if (function == "Pow" || function == "PowByNatural") {
      return power(a, b);
    }
    if (function == "FloorDiv" || function == "CleanDiv") {
      return floorDivide(a, b);
    }
    if (function == "CeilDiv") {
      const std::int64_t quotient = floorDivide(a, b);
      return quotient * b == a ? quotient : quotient + 1;
    }
    if (function == "Mod" || function == "PythonMod") {
      return b == -1 ? 0 : a - floorDivide(a, b) * b;
    }
    const std::array<std::pair<std::string_view, bool>, 6> comparisons{{{"Equality", a == b},
                                                                        {"Unequality", a != b},
                                                                        {"StrictLessThan", a < b},
                                                                        {"LessThan", a <= b},
                                                                        {"StrictGreaterThan", a > b},
                                                                        {"GreaterThan", a >= b}}};
    for (const auto& [comparison, holds] : comparisons) {
      if (function == comparison) {
        return holds ? 1 : 0;
      }
    }
    return fail(fmt::format("uses `{}`, which is not understood", function));
  }

  /// Rounds towards minus infinity, as Python does.
  std::int64_t floorDivide(std::int64_t a, std::int64_t b) {
    if (b == 0) {
      return fail("divides by zero");
    }
    if (a == std::numeric_limits<std::int64_t>::min() && b == -1) {
      return fail("exceeds 64 bits");
    }
    const std::int64_t quotient = a / b;
    return a % b != 0 && ((a < 0) != (b < 0)) ? quotient - 1 : quotient;
  }

  std::int64_t power(std::int64_t base, std::int64_t exponent) {
    if (exponent < 0) {
      return fail("has a negative power");
    }
    if (exponent == 0 || base == 1) {
      return 1;
    }
    if (base == 0 || base == -1) {
      return base == 0 ? 0 : (exponent % 2 == 0 ? 1 : -1);
    }
    std::int64_t value = 1;
    for (std::int64_t i = 0; i < exponent; ++i) {  // |base| ≥ 2: at most 64 rounds before it overflows
      if (__builtin_mul_overflow(value, base, &value)) {
        return fail("exceeds 64 bits");
      }
    }
    return value;
  }

  std::string_view text_;
  const Bindings& bindings_;
  std::size_t position_ = 0;
  std::string why_;
};

}  // namespace

std::optional<std::int64_t> knownNumber(const SymbolicInt& number, const Bindings& bindings) {
  return number.expression.empty() ? number.hint : Evaluator(number.expression, bindings).run();
}

std::string whyUnknown(const SymbolicInt& number, const Bindings& bindings) {
  Evaluator evaluator(number.expression, bindings);
  return number.expression.empty() || evaluator.run() ? std::string() : evaluator.why();
}

std::int64_t evaluate(const SymbolicInt& number, const Bindings& bindings) {
  const std::optional<std::int64_t> known = knownNumber(number, bindings);
  if (!known) throw Error(whyUnknown(number, bindings));
  return *known;
}

std::optional<std::vector<std::int64_t>> knownShape(const TensorMeta& meta, const Bindings& bindings) {
  std::vector<std::int64_t> shape;
  shape.reserve(meta.sizes.size());
  for (const SymbolicInt& size : meta.sizes) {
    const std::optional<std::int64_t> number = knownNumber(size, bindings);
    if (!number || *number < 0) return std::nullopt;
    shape.push_back(*number);
  }
  return shape;
}

std::optional<Bytes> knownBytes(const TensorMeta& meta, const Bindings& bindings) {
  const auto shape = knownShape(meta, bindings);
  if (!shape) return std::nullopt;
  if (std::ranges::find(*shape, 0) != shape->end()) return Bytes{0};
  Bytes bytes = bytesPerElement(meta.dtype);
  for (const std::int64_t size : *shape) {
    if (__builtin_mul_overflow(bytes.value, size, &bytes.value)) return std::nullopt;
  }
  return bytes;
}

std::string whyUnknown(const TensorMeta& meta, const Bindings& bindings) {
  for (const SymbolicInt& size : meta.sizes) {
    const std::optional<std::int64_t> number = knownNumber(size, bindings);
    if (!number) return whyUnknown(size, bindings);
    if (*number < 0) return fmt::format("a tensor size is negative: `{}` gives {} with these input sizes", size.expression, *number);
  }
  if (knownBytes(meta, bindings)) return {};
  return fmt::format("a {} tensor of [{}] is larger than any memory", nameOf(meta.dtype), fmt::join(*knownShape(meta, bindings), ", "));
}

std::vector<std::int64_t> shapeOf(const TensorMeta& meta, const Bindings& bindings) {
  auto known = knownShape(meta, bindings);
  if (!known) throw Error(whyUnknown(meta, bindings));
  return *std::move(known);
}

Bytes bytesOf(const TensorMeta& meta, const Bindings& bindings) {
  const std::optional<Bytes> known = knownBytes(meta, bindings);
  if (!known) throw Error(whyUnknown(meta, bindings));
  return *known;
}

/// As ATen's infer_dense_strides, which is what `empty_like` gives and random operators fill: an insertion sort from the innermost
/// dimension out, in which dimensions of repeated or single elements stay where they are.
std::vector<std::int64_t> memoryOrderOf(const std::vector<std::int64_t>& sizes, const std::vector<std::int64_t>& strides) {
  const auto says = [&](std::int64_t d) { return sizes[static_cast<std::size_t>(d)] != 1 && strides[static_cast<std::size_t>(d)] != 0; };
  const auto strideOf = [&](std::int64_t d) { return std::pair(strides[static_cast<std::size_t>(d)], sizes[static_cast<std::size_t>(d)]); };
  std::vector<std::int64_t> order(sizes.size());  // innermost first
  std::iota(order.rbegin(), order.rend(), 0);
  for (std::size_t i = 1; i < order.size(); ++i) {
    std::size_t moved = i;
    for (std::size_t j = i; j-- > 0;) {
      if (!says(order[j]) || !says(order[moved])) continue;
      if (strides[static_cast<std::size_t>(order[j])] < strides[static_cast<std::size_t>(order[moved])]) break;
      if (strideOf(order[j]) > strideOf(order[moved])) std::swap(order[j], order[std::exchange(moved, j)]);
    }
  }
  std::ranges::reverse(order);
  std::vector<std::int64_t> longer = order;
  std::erase_if(longer, [&](std::int64_t d) { return sizes[static_cast<std::size_t>(d)] == 1; });
  return std::ranges::is_sorted(longer) ? std::vector<std::int64_t>() : order;
}

std::string mapSymbols(std::string_view expression, const std::function<std::string(const std::string&, std::string_view)>& replace) {
  constexpr std::string_view kSymbol = "Symbol(";
  std::string result;
  std::size_t done = 0;
  for (std::size_t at = expression.find(kSymbol); at != std::string_view::npos; at = expression.find(kSymbol, done)) {
    const std::size_t open = at + kSymbol.size();
    const std::size_t end = open < expression.size() ? expression.find(expression[open], open + 1) : std::string_view::npos;
    const std::size_t close = end == std::string_view::npos ? end : expression.find(')', end);
    if (close == std::string_view::npos) {
      break;
    }
    result += expression.substr(done, at - done);
    result += replace(std::string(expression.substr(open + 1, end - open - 1)), expression.substr(at, close + 1 - at));
    done = close + 1;
  }
  result += expression.substr(done);
  return result;
}

std::set<std::string> symbolsOf(const SymbolicInt& number) {
  std::set<std::string> symbols;
  static_cast<void>(mapSymbols(number.expression, [&](const std::string& name, std::string_view whole) {
    symbols.insert(name);
    return std::string(whole);
  }));
  return symbols;
}

std::optional<LinearForm> linearForm(const SymbolicInt& number) {
  const std::set<std::string> symbols = symbolsOf(number);
  if (symbols.size() != 1) return std::nullopt;
  // Powers, remainders and divisions are never linear, though some of them are at the probes.
  for (const std::string_view function : {"Pow", "Div", "Mod", "Max", "Min", "Than", "quality"}) {
    if (number.expression.find(function) != std::string::npos) return std::nullopt;
  }
  LinearForm form;
  form.symbol = *symbols.begin();
  const auto at = [&](std::int64_t value) { return knownNumber(number, {{form.symbol, value}}); };
  const auto zero = at(0), one = at(1), two = at(2);
  if (!zero || !one || !two) return std::nullopt;
  form.constant = *zero;
  std::int64_t step = 0;
  if (__builtin_sub_overflow(*one, *zero, &form.factor) || __builtin_sub_overflow(*two, *one, &step) || step != form.factor ||
      form.factor == 0) {
    return std::nullopt;
  }
  return form;
}

std::optional<std::int64_t> solve(const LinearForm& form, std::int64_t value) {
  std::int64_t difference = 0;
  if (__builtin_sub_overflow(value, form.constant, &difference) || form.factor == 0 ||
      (form.factor == -1 && difference == std::numeric_limits<std::int64_t>::min()) || difference % form.factor != 0) {
    return std::nullopt;
  }
  return difference / form.factor;
}

}  // namespace pw
