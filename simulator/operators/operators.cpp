#include "simulator/operators/operators.h"

#include <unordered_map>

namespace pw {
namespace {

constexpr std::string_view kAten = "torch.ops.aten.";

std::unordered_map<std::string_view, const Operator*> byName() {
  std::unordered_map<std::string_view, const Operator*> rows;
  for (const std::span<const Operator> family : operators::families()) {
    for (const Operator& row : family) rows.emplace(row.name, &row);
  }
  return rows;
}

}  // namespace

const Operator& operatorOf(const std::string& target) {
  static const std::unordered_map<std::string_view, const Operator*> rows = byName();
  static constexpr Operator kUnknown;
  std::string_view name = target;
  if (name.starts_with(kAten)) {
    name.remove_prefix(kAten.size());
    name = name.substr(0, name.find('.'));
  }
  auto found = rows.find(name);
  if (found == rows.end() && name.ends_with('_')) found = rows.find(name.substr(0, name.size() - 1));  // in place
  return found == rows.end() ? kUnknown : *found->second;
}

namespace operators {

std::span<const std::span<const Operator>> families() {
  static const std::array all{creation(), layers(), pointwise(), products(), reductions(), shapes()};
  return all;
}

}  // namespace operators
}  // namespace pw
