#pragma once

#include <cstdint>
#include <string_view>

#include "schedules/named_values.h"

namespace pw {

/// How the progress of a task is shown on stderr, also by processes that it starts.
enum class ProgressStyle : std::uint8_t {
  Automatic,  ///< a bar on a terminal, otherwise nothing
  Json,       ///< one line a second
};
constexpr std::string_view nameOf(ProgressStyle style) {
  switch (style) {
    case ProgressStyle::Automatic: return "auto";
    case ProgressStyle::Json: return "json";
  }
  return {};
}

}  // namespace pw
