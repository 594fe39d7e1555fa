#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "simulator/model/model_graph.h"

namespace pw {

/// The node's argument of one of these names; null without one. Lives as long as the node.
[[nodiscard]] const Argument* argumentOf(const Node& node, std::initializer_list<std::string_view> names);
[[nodiscard]] const Argument* argumentOf(const Node& node, std::string_view name);

/// The value that is passed as this argument; nothing where it is a list, a number, or is not given.
[[nodiscard]] std::optional<ValueId> valueOf(const Node& node, std::string_view name);

/// The integer that is passed as this argument; nothing where it is something else or is not given.
[[nodiscard]] std::optional<std::int64_t> integerOf(const Node& node, std::string_view name);

/// Whether this argument is true, `fallback` where it is not given.
[[nodiscard]] bool flagOf(const Node& node, std::string_view name, bool fallback);

/// Whether it is a region under no_grad: `wrap_with_set_grad_enabled(False, …)`.
[[nodiscard]] bool runsWithoutGradient(const Node& node);

/// Dimensions that an argument names, counted from the front of a tensor of `rank`; empty where it names none.
[[nodiscard]] std::vector<std::size_t> dimensionsOf(const Node& node, std::size_t rank,
                                                    std::initializer_list<std::string_view> names = {"dim", "dims"});

}  // namespace pw
