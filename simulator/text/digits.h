#pragma once

#include <algorithm>
#include <string_view>

namespace pw {

/// Whether a part of a module's path is a number, as that of a module in a list is (`3` of `blocks.3`): digits alone, and at least one.
[[nodiscard]] inline bool isDigits(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace pw
