#include "backends/traces/readers/window_objects.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "schedules/error.h"

namespace pw {

void refuseBrokenWindow(const EventWindows& windows, std::string_view events, const std::string& path, simdjson::error_code problem) {
  const std::uint64_t position = windows.position();
  throw UsageError(fmt::format("{} is damaged: its JSON is broken about {} bytes in ({}); record or copy it again", path,
                               position - std::min<std::uint64_t>(position, events.size() / 2), simdjson::error_message(problem)));
}

}  // namespace pw
