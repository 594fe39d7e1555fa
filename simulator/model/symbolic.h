#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "simulator/model/model_graph.h"

namespace pw {

/// `constant + factor · symbol`, factor ≠ 0.
struct LinearForm {
  std::string symbol;
  std::int64_t factor = 1;
  std::int64_t constant = 0;
};

/// The form of a size with exactly one symbol, in which it is linear (checked at three points): what exporters write for an input's
/// dimension. Nothing for literals and other shapes of expression. Throws Error for an expression that `evaluate` does not support.
[[nodiscard]] std::optional<LinearForm> linearForm(const SymbolicInt& number);

/// The symbol's value for which the form equals `value`; nothing when that is not an integer.
[[nodiscard]] std::optional<std::int64_t> solve(const LinearForm& form, std::int64_t value);

/// The expression with each `Symbol('name', …)` replaced by `replace(name, wholeText)`.
[[nodiscard]] std::string mapSymbols(std::string_view expression,
                                     const std::function<std::string(const std::string&, std::string_view)>& replace);

}  // namespace pw
