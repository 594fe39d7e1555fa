#pragma once

// Internal to the import of traces: the events of a window, one JSON object after the other.

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/traces/windows.h"
#include "schedules/error.h"

namespace pw {

/// Gives every object of the window's array to `take`, which returns what simdjson said when it read its members; other elements are
/// skipped. Throws UsageError, which names the file and about where, when the JSON is broken. Bytes that are not UTF-8 are read as
/// question marks: labels are ASCII, and what a foreign name holds does not matter.
template <class Take>
void forEachObject(simdjson::ondemand::parser& parser, EventWindows& windows, std::string_view events, const std::string& path, Take take) {
  const auto refuse = [&](simdjson::error_code problem) {
    const std::uint64_t position = windows.position();
    throw UsageError(fmt::format("{} is damaged: its JSON is broken about {} bytes in ({}); record or copy it again", path,
                                 position - std::min<std::uint64_t>(position, events.size() / 2), simdjson::error_message(problem)));
  };
  simdjson::ondemand::document document;
  const simdjson::padded_string_view text(events.data(), events.size(), events.size() + EventWindows::kPadding);
  auto problem = parser.iterate(text).get(document);
  if (problem == simdjson::UTF8_ERROR) {
    windows.replaceBeyondAscii(events);
    problem = parser.iterate(text).get(document);
  }
  if (problem != simdjson::SUCCESS) refuse(problem);
  simdjson::ondemand::array array;
  if (const auto broken = document.get_array().get(array)) refuse(broken);
  for (auto element : array) {
    simdjson::ondemand::value value;
    if (const auto broken = element.get(value)) refuse(broken);
    simdjson::ondemand::object object;
    const auto notObject = value.get_object().get(object);
    if (notObject == simdjson::INCORRECT_TYPE) continue;
    if (notObject != simdjson::SUCCESS) refuse(notObject);
    if (const auto broken = take(object)) refuse(broken);
  }
}

}  // namespace pw
