#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// Stands for a symbolic number that the sizes of the inputs do not give.
inline constexpr std::int64_t kUnknownNumber = std::numeric_limits<std::int64_t>::min();

/// An integer, a truth value (0 or 1), or a floating point number.
using Number = std::variant<std::int64_t, double>;

[[nodiscard]] double asDouble(const Number& number);

/// The symbolic numbers of one run of a program: those that follow from the input sizes, and those that nodes compute from data at run time
/// (`item`, the length of `nonzero`, arithmetic with these).
class Numbers {
 public:
  /// `known`, by value index, must outlive this.
  explicit Numbers(const std::vector<std::int64_t>& known) : known_(&known) {}

  [[nodiscard]] std::optional<Number> find(ValueId value) const;
  void set(ValueId value, Number number) { computed_.insert_or_assign(value.value, number); }
  /// `to` becomes what `from` is, where that is known.
  void copy(ValueId from, ValueId to);

 private:
  const std::vector<std::int64_t>* known_;
  std::unordered_map<std::int32_t, Number> computed_;
};

/// Whether a node calls a function of Python on numbers (`_operator.add`, `torch.sym_max`, `math.floor`) instead of an operator.
[[nodiscard]] bool isArithmetic(const Node& node);
/// Throws UsageError when `node` calls a function that Pipewright does not know.
void requireKnownArithmetic(const Node& node);
/// What the function of an arithmetic node returns, as Python computes it. Throws Error for an operand that nothing has computed, a
/// division by zero, and an integer beyond 64 bits.
[[nodiscard]] Number arithmetic(const Node& node, const Numbers& numbers);

}  // namespace pw
