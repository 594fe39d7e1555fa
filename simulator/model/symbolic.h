#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// What `evaluate`, `shapeOf` and `bytesOf` return; nothing where they would throw: a number that depends on data is known only when the
/// model runs, and an expression that nobody here understands may be, too. Costs as these.
[[nodiscard]] std::optional<std::int64_t> knownNumber(const SymbolicInt& number, const Bindings& bindings);
[[nodiscard]] std::optional<std::vector<std::int64_t>> knownShape(const TensorMeta& meta, const Bindings& bindings);
[[nodiscard]] std::optional<Bytes> knownBytes(const TensorMeta& meta, const Bindings& bindings);

/// Why there is no such number: `the size expression … needs `u0`, which no input size gives (…)`. Empty where there is one.
[[nodiscard]] std::string whyUnknown(const SymbolicInt& number, const Bindings& bindings);
/// The same of a tensor's bytes.
[[nodiscard]] std::string whyUnknown(const TensorMeta& meta, const Bindings& bindings);

/// The names of the symbols in a size; none in a literal.
[[nodiscard]] std::set<std::string> symbolsOf(const SymbolicInt& number);

/// `constant + factor · symbol`, factor ≠ 0.
struct LinearForm {
  std::string symbol;
  std::int64_t factor = 1;
  std::int64_t constant = 0;
};

/// The form of a size with exactly one symbol, in which it is linear (checked at three points): what exporters write for an input's
/// dimension. Nothing for literals, other shapes of expression, and what `evaluate` does not support.
[[nodiscard]] std::optional<LinearForm> linearForm(const SymbolicInt& number);

/// The symbol's value for which the form equals `value`; nothing when that is not an integer.
[[nodiscard]] std::optional<std::int64_t> solve(const LinearForm& form, std::int64_t value);

/// The expression with each `Symbol('name', …)` replaced by `replace(name, wholeText)`.
[[nodiscard]] std::string mapSymbols(std::string_view expression,
                                     const std::function<std::string(const std::string&, std::string_view)>& replace);

}  // namespace pw
