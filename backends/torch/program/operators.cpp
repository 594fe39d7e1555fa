#include "backends/torch/program/operators.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>

namespace pw {

std::optional<c10::OperatorHandle> operatorNamed(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  if (!target.starts_with(kPrefix)) return std::nullopt;
  target.remove_prefix(kPrefix.size());
  const std::size_t first = target.find('.'), last = target.rfind('.');
  if (first == std::string_view::npos || first == last) return std::nullopt;
  const std::string_view overload = target.substr(last + 1);
  const std::string name = std::string(target.substr(0, first)) + "::" + std::string(target.substr(first + 1, last - first - 1));
  return c10::Dispatcher::singleton().findSchema({name, overload == "default" ? "" : std::string(overload)});
}

bool touchesFiles(const c10::OperatorHandle& op) {
  const auto isText = [](const c10::TypePtr& type) {
    const auto optional = type->cast<c10::OptionalType>();
    return (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::StringType;
  };
  const auto namesFile = [](std::string_view name) {
    while (!name.empty()) {
      const std::size_t end = std::min(name.find('_'), name.size());
      const std::string_view word = name.substr(0, end);
      if (word == "file" || word == "filename" || word == "path" || word == "filepath" || word == "pathname") return true;
      name.remove_prefix(std::min(end + 1, name.size()));
    }
    return false;
  };
  return std::ranges::any_of(op.schema().arguments(),
                             [&](const c10::Argument& argument) { return isText(argument.type()) && namesFile(argument.name()); });
}

}  // namespace pw
