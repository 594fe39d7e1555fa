#include "app/cli/options/figure.h"

#include <CLI/CLI.hpp>
#include <cstdint>

#include "schedules/error.h"

namespace pw::cli {
namespace {

constexpr const char* kGroup = kFigureGroup;

/// Help shows the one that changes something.
void addSwitch(CLI::App& command, const FigureSetting& setting, FigureOptions& options) {
  const bool isOn = setting.text({}) == "on";
  for (const bool on : {true, false}) {
    command
        .add_flag_function((on ? "--" : "--no-") + std::string(setting.name),
                           [&options, &setting, on](std::int64_t) {
                             setting.set(options.style, on ? "on" : "off");
                             options.given.emplace_back(setting.name);
                           },
                           std::string(setting.help))
        ->group(on == isOn ? "" : kGroup);
  }
}

void addValue(CLI::App& command, const FigureSetting& setting, FigureOptions& options) {
  const CLI::Validator check(
      [&setting](std::string& text) {
        try {
          FigureStyle trial;
          setting.set(trial, text);
        } catch (const UsageError& e) {
          return std::string(e.what());
        }
        return std::string();
      },
      "");
  command
      .add_option_function<std::string>(
          "--" + std::string(setting.name),
          [&options, &setting](const std::string& text) {
            setting.set(options.style, text);
            options.given.emplace_back(setting.name);
          },
          std::string(setting.help))
      ->check(check)
      ->option_text(std::string(setting.value))
      ->group(kGroup);
}

}  // namespace

void addFigureOptions(CLI::App& command, FigureOptions& options) {
  for (const FigureSetting& setting : figureSettings()) (setting.value.empty() ? addSwitch : addValue)(command, setting, options);
}

}  // namespace pw::cli
