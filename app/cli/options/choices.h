#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "schedules/named_values.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace pw::cli {

/// Adds an option whose value is one of these names, which are separated by `|` and shown in its help; `take` gets it.
CLI::Option* addChoice(CLI::App& command, const std::string& option, const std::string& names, std::function<void(std::string_view)> take,
                       const std::string& description);

/// Adds an option whose value is one of an enum's names. `target` must live as long as the command and keeps its value where the option is
/// not given.
template <class Enum>
CLI::Option* addChoice(CLI::App& command, const std::string& option, Enum& target, const std::string& description) {
  return addChoice(
      command, option, namesOf<Enum>("|"), [&target](std::string_view name) { target = valueNamed<Enum>(name).value(); }, description);
}
template <class Enum>
CLI::Option* addChoice(CLI::App& command, const std::string& option, std::optional<Enum>& target, const std::string& description) {
  return addChoice(
      command, option, namesOf<Enum>("|"), [&target](std::string_view name) { target = valueNamed<Enum>(name); }, description);
}

}  // namespace pw::cli
