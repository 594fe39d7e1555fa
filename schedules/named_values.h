#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pw {

// Closed sets that have names in options and files. The enum's values count up from 0, and beside it stands `constexpr std::string_view
// nameOf(Enum)`: a switch without default, so that the compiler names a value that was forgotten, and an empty text after it. The list of
// all values follows from that.

/// How many values the enum has.
template <class Enum>
consteval std::size_t countOf() {
  std::size_t count = 0;
  while (!nameOf(static_cast<Enum>(count)).empty()) ++count;
  return count;
}

/// All values, in the enum's order.
template <class Enum>
constexpr std::array<Enum, countOf<Enum>()> valuesOf() {
  std::array<Enum, countOf<Enum>()> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<Enum>(i);
  return values;
}

/// The value of that name, if there is one.
template <class Enum>
constexpr std::optional<Enum> valueNamed(std::string_view name) {
  for (const Enum value : valuesOf<Enum>()) {
    if (nameOf(value) == name) return value;
  }
  return std::nullopt;
}

/// All names in the enum's order: `plan|ready`, with that separator.
template <class Enum>
std::string namesOf(std::string_view separator) {
  std::string names;
  for (const Enum value : valuesOf<Enum>()) names.append(names.empty() ? "" : separator).append(nameOf(value));
  return names;
}

}  // namespace pw
