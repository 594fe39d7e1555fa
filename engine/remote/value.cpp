#include "engine/remote/value.h"

#include <algorithm>
#include <array>

#include "schedules/error.h"

namespace pw {

void RemoteValue::refuse(const char* what) const {
  static constexpr std::array<const char*, 11> kNames{"nothing",  "a truth value", "an integer", "a number", "a text", "bytes",
                                                      "a tensor", "a reference",   "an object",  "a list",   "a dict"};
  throw UsageError(std::string("A value of a remote call is ") + kNames.at(content.index()) + " where " + what + " is needed.");
}

const RemoteValue& RemoteValue::at(std::size_t index) const {
  const List& values = list();
  if (index < values.size()) return values[index];
  throw UsageError("A remote call needs value " + std::to_string(index) + " of a list of " + std::to_string(values.size()) + ".");
}

const RemoteValue& RemoteValue::at(const std::string& key) const {
  const Dict& values = dict();
  const auto found = std::find_if(values.begin(), values.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != values.end()) return found->second;
  throw UsageError("A remote call needs the entry " + key + " of a dict that has none.");
}

}  // namespace pw
