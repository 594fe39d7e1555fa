#include "app/cli/options/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <CLI/App.hpp>
#include <CLI/Validators.hpp>

#include "schedules/error.h"
#include "schedules/units.h"
#include "simulator/text/number_text.h"

namespace pw::cli {
namespace {

constexpr const char* kName = "number";  ///< of validators whose description help shows

/// 1024, 16777216, and 1e+06 as 1000000.
std::string shown(double number) {
  return std::abs(number) < 1e9 && number == std::floor(number) ? fmt::format("{:.0f}", number) : fmt::format("{:g}", number);
}

/// A validator from `refusal`, which returns what is wrong with a text, or an empty string.
template <class Refusal>
CLI::Validator validator(const Refusal& refusal, const std::string& description) {
  return {[refusal](std::string& text) { return std::string(refusal(text)); }, description, kName};
}

std::string refusalOf(const auto& parse) {
  try {
    parse();
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

CLI::Validator wholeFrom(std::int64_t least, std::int64_t most) {
  const std::string range =
      most == std::numeric_limits<std::int64_t>::max() ? fmt::format("{} to 2^63 - 1", least) : fmt::format("{} to {}", least, most);
  return validator(
      [=](const std::string& text) {
        const auto number = numberOf<std::int64_t>(text);
        return number && *number >= least && *number <= most ? "" : fmt::format("\"{}\" is not an integer from {}", text, range);
      },
      range);
}

CLI::Validator numberFrom(double least, double most) {
  const std::string range = fmt::format("{} to {}", shown(least), shown(most));
  return validator(
      [=](const std::string& text) {
        const auto number = numberOf<double>(text);
        return number && *number >= least && *number <= most ? "" : fmt::format("\"{}\" is not a number from {}", text, range);
      },
      range);
}

CLI::Validator aRunId() { return wholeFrom(1, 1 << 30); }

CLI::Validator aSeed() { return wholeFrom(0, std::numeric_limits<std::int64_t>::max()); }

CLI::Validator aSize() {
  return validator(
      [](const std::string& text) {
        return refusalOf([&] {
          if (parseSize(text) == 0) throw UsageError(fmt::format("\"{}\" is not a memory size; use a size above 0, like 24GiB", text));
        });
      },
      "");
}

CLI::Validator aDuration() {
  return validator([](const std::string& text) { return refusalOf([&] { static_cast<void>(parseDuration(text)); }); }, "");
}

CLI::Validator durationList() {
  return validator(
      [](const std::string& text) {
        return refusalOf([&] {
          for (std::size_t at = 0; at <= text.size();) {
            const std::size_t comma = std::min(text.find(',', at), text.size());
            static_cast<void>(parseDuration(std::string_view(text).substr(at, comma - at)));
            at = comma + 1;
          }
        });
      },
      "");
}

void describeRanges(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    try {
      const std::string range = option->get_validator(kName)->get_description();
      if (!range.empty()) option->description(fmt::format("{}; {}", option->get_description(), range));
    } catch (const CLI::OptionNotFound&) {
      // how CLI11 says that the option has no such validator
    }
  }
}

}  // namespace pw::cli
