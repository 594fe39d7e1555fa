#include "app/cli/options/choices.h"

#include <CLI/CLI.hpp>
#include <sstream>
#include <utility>
#include <vector>

namespace pw::cli {

CLI::Option* addChoice(CLI::App& command, const std::string& option, const std::string& names, std::function<void(std::string_view)> take,
                       const std::string& description) {
  std::vector<std::string> known;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream, name, '|');) known.push_back(name);
  return command
      .add_option_function<std::string>(
          option, [take = std::move(take)](const std::string& name) { take(name); }, description)
      ->check(CLI::IsMember(known))
      ->option_text(names);
}

}  // namespace pw::cli
