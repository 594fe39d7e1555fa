#pragma once

#include <cstdint>
#include <string_view>

namespace pw {

/// Where times come from.
enum class TimesOf : std::uint8_t {
  Measured,   ///< a run or trace that computed
  Rehearsed,  ///< a run with --synthetic, whose stages took as long as its plan says and computed nothing
  Predicted,  ///< a plan
};
constexpr std::string_view nameOf(TimesOf times) {
  switch (times) {
    case TimesOf::Measured: return "measured";
    case TimesOf::Rehearsed: return "rehearsed";
    case TimesOf::Predicted: return "predicted";
  }
  return {};
}

}  // namespace pw
