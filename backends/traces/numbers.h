#pragma once

// Internal to the import of traces: numbers in the text of a file.

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "schedules/ids.h"

namespace pw {

/// The number that is the whole text; nothing if it is none, or does not fit.
template <class Int>
[[nodiscard]] std::optional<Int> wholeNumber(std::string_view text) {
  Int number{};
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Microseconds, with any number of digits after the point, as nanoseconds: exact, where a double would lose what lies 50 years from its
/// origin. Nothing for what is no number, or beyond kLatestTime.
[[nodiscard]] std::optional<Ns> nanoseconds(std::string_view text);

}  // namespace pw
