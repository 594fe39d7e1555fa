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
  return std::ranges::any_of(op.schema().arguments(), [](const c10::Argument& argument) {
    return argument.type()->kind() == c10::TypeKind::StringType &&
           (argument.name().find("file") != std::string::npos || argument.name().find("path") != std::string::npos);
  });
}

}  // namespace pw
