#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace pw {

/// The number that is the whole text, in decimal; nothing if it is none, or does not fit the type.
template <class Number>
[[nodiscard]] std::optional<Number> numberOf(std::string_view text) {
  Number number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace pw
