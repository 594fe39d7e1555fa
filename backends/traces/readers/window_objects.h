#pragma once

// Internal to the import of traces: the events of a window, one JSON object after the other, and their members.

#include <simdjson.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "backends/traces/readers/windows.h"

namespace pw {

/// The token without trailing blanks and surrounding quotes.
[[nodiscard]] inline std::string_view bare(std::string_view token) {
  while (!token.empty() && (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t'))
    token.remove_suffix(1);
  if (token.size() >= 2 && token.front() == '"' && token.back() == '"') token = token.substr(1, token.size() - 2);
  return token;
}

/// Whether a member of an object has that name, which needs no escapes.
template <std::size_t Size>
[[nodiscard]] bool isNamed(const simdjson::ondemand::raw_json_string& key, const char (&name)[Size]) {
  return std::strncmp(key.raw(), name, Size - 1) == 0 && key.raw()[Size - 1] == '"';
}

/// Throws UsageError, which names the file and about where its JSON is broken.
[[noreturn]] void refuseBrokenWindow(const EventWindows& windows, std::string_view events, const std::string& path,
                                     simdjson::error_code problem);

/// Gives every object of the window's array to `take`, which returns what simdjson said when it read its members; other elements are
/// skipped. Throws UsageError, which names the file and about where, when the JSON is broken. Bytes that are not UTF-8 are read as
/// question marks: labels are ASCII, and what a foreign name holds does not matter.
template <class Take>
void forEachObject(simdjson::ondemand::parser& parser, EventWindows& windows, std::string_view events, const std::string& path, Take take) {
  const auto refuse = [&](simdjson::error_code problem) { refuseBrokenWindow(windows, events, path, problem); };
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
