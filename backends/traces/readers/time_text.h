#pragma once

// Internal to the import of traces: numbers in the text of a file.

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

#include "schedules/ids.h"

namespace pw {

/// Microseconds, with any number of digits after the point, as nanoseconds: exact, where a double would lose what lies 50 years from its
/// origin. Nothing for what is no number, or beyond kLatestTime.
[[nodiscard]] std::optional<Ns> nanoseconds(std::string_view text);

}  // namespace pw
