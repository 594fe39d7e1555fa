#pragma once

#include <simdjson.h>

#include <cstdint>
#include <string_view>

namespace pw::dumps {

/// The number of that key, or `otherwise` where there is none.
[[nodiscard]] inline std::int64_t numberAt(const simdjson::dom::object& object, std::string_view key, std::int64_t otherwise) {
  std::int64_t value = 0;
  return object[key].get(value) == simdjson::SUCCESS ? value : otherwise;
}

/// The text of that key, valid as long as its document; empty where there is none.
[[nodiscard]] inline std::string_view textAt(const simdjson::dom::object& object, std::string_view key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? text : std::string_view();
}

}  // namespace pw::dumps
