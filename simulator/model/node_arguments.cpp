#include "simulator/model/node_arguments.h"

#include <algorithm>

namespace pw {
namespace {

template <class T>
std::optional<T> typedArgument(const Node& node, std::string_view name) {
  const Argument* argument = argumentOf(node, name);
  const T* typed = argument == nullptr ? nullptr : std::get_if<T>(argument);
  return typed == nullptr ? std::nullopt : std::optional<T>(*typed);
}

}  // namespace

const Argument* argumentOf(const Node& node, std::initializer_list<std::string_view> names) {
  const auto found =
      std::ranges::find_if(node.inputs, [&](const NamedArgument& a) { return std::ranges::find(names, a.name) != names.end(); });
  return found == node.inputs.end() ? nullptr : &found->value;
}

const Argument* argumentOf(const Node& node, std::string_view name) { return argumentOf(node, {name}); }

std::optional<ValueId> valueOf(const Node& node, std::string_view name) { return typedArgument<ValueId>(node, name); }

std::optional<std::int64_t> integerOf(const Node& node, std::string_view name) { return typedArgument<std::int64_t>(node, name); }

bool flagOf(const Node& node, std::string_view name, bool fallback) { return typedArgument<bool>(node, name).value_or(fallback); }

bool runsWithoutGradient(const Node& node) {
  if (node.target != "torch.ops.higher_order.wrap_with_set_grad_enabled" || node.inputs.empty()) return false;
  const auto* enabled = std::get_if<bool>(&node.inputs.front().value);
  return enabled != nullptr && !*enabled;
}

std::vector<std::size_t> dimensionsOf(const Node& node, std::size_t rank, std::initializer_list<std::string_view> names) {
  std::vector<std::int64_t> raw;
  if (const Argument* argument = argumentOf(node, names); argument != nullptr) {
    if (const auto* one = std::get_if<std::int64_t>(argument)) raw = {*one};
    if (const auto* many = std::get_if<std::vector<std::int64_t>>(argument)) raw = *many;
  }
  std::vector<std::size_t> dimensions;
  for (const std::int64_t d : raw) dimensions.push_back(static_cast<std::size_t>(d < 0 ? d + static_cast<std::int64_t>(rank) : d));
  return dimensions;
}

}  // namespace pw
