#include "backends/store/run_columns.h"

#include "simulator/costs/profile.h"

namespace pw {

std::string textOf(const RunColumn& column, const RunFacts& facts) {
  return std::visit(
      [&facts](auto member) -> std::string {
        const auto& value = facts.*member;
        using Fact = std::decay_t<decltype(value)>;
        if constexpr (std::is_same_v<Fact, bool>) {
          return value ? "yes" : "";
        } else if constexpr (std::is_same_v<Fact, DType>) {
          return value == DType::Unknown ? "" : std::string(precisionName(value));
        } else {
          return value ? std::string(nameOf(*value)) : "";
        }
      },
      column.member);
}

}  // namespace pw
