#include "simulator/text/json_part.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/text/json_text.h"

namespace pw {

void JsonDocument::fail(std::string_view what) const {
  constexpr std::size_t kLongest = 600;  // may contain text from the file
  what = what.substr(0, kLongest);
  throw UsageError(fmt::format("{} is not a usable {}: {}; {}.", source, kind, what,
                               cure.empty() ? fmt::format("{} the model again", kind) : std::string(cure)));
}

nlohmann::ordered_json JsonDocument::parse(std::string_view text) const {
  return readJson<nlohmann::ordered_json>(text, [this](const std::string& what) { fail(what); });
}

nlohmann::json JsonDocument::parseUnordered(std::string_view text) const {
  return readJson<nlohmann::json>(text, [this](const std::string& what) { fail(what); });
}

/// `get` alone would truncate a number that is too large or not an integer.
template <class Int, class Json>
std::optional<Int> integerIn(const Json& json) {
  const bool fits = json.is_number_unsigned() ? std::in_range<Int>(json.template get<std::uint64_t>())
                                              : json.is_number_integer() && std::in_range<Int>(json.template get<std::int64_t>());
  return fits ? std::optional(json.template get<Int>()) : std::nullopt;
}

template <class Json>
void BasicJsonPart<Json>::fail(std::string_view what) const {
  document_.fail(path_.empty() ? fmt::format("it {}", what) : fmt::format("`{}` {}", path_, what));
}

template <class Json>
BasicJsonPart<Json> BasicJsonPart<Json>::operator[](const std::string& key) const {
  const std::string path = path_.empty() ? key : path_ + "." + key;
  const auto found = json_.find(key);  // the end if it is not an object
  if (found == json_.end()) document_.fail(fmt::format("it lacks `{}`", path));
  return {*found, document_, path};
}

template <class Json>
BasicJsonPart<Json> BasicJsonPart<Json>::operator[](std::size_t index) const {
  const std::string path = fmt::format("{}[{}]", path_, index);
  if (!json_.is_array() || index >= json_.size()) document_.fail(fmt::format("it lacks `{}`", path));
  return {json_[index], document_, path};
}

template <class Json>
bool BasicJsonPart<Json>::has(const std::string& key) const {
  return json_.contains(key);
}

template <class Json>
std::size_t BasicJsonPart<Json>::size() const {
  if (!json_.is_array()) fail("is not a list");
  return json_.size();
}

template <class Json>
std::vector<std::string> BasicJsonPart<Json>::keys() const {
  if (!json_.is_object()) fail("is not a JSON object");
  std::vector<std::string> names;
  for (const auto& [name, member] : json_.items()) names.push_back(name);
  return names;
}

template <class Json>
template <class Int>
Int BasicJsonPart<Json>::integer() const {
  const auto value = integerIn<Int>(json_);
  if (!value) fail(fmt::format("is not an integer in range{}", json_.is_number() ? ": " + json_.dump() : ""));
  return *value;
}

template <class Json>
std::int64_t BasicJsonPart<Json>::bounded(std::int64_t low, std::int64_t high) const {
  const auto value = integer<std::int64_t>();
  if (value < low || value > high) fail(fmt::format("is {}, outside {} to {}", value, low, high));
  return value;
}

template <class Json>
void BasicJsonPart<Json>::read(std::string& value) const {
  if (!json_.is_string()) fail("is not a string");
  value = json_.template get<std::string>();
}

template <class Json>
void BasicJsonPart<Json>::read(bool& value) const {
  if (!json_.is_boolean()) fail("is not true or false");
  value = json_.template get<bool>();
}

template <class Json>
void BasicJsonPart<Json>::read(double& value) const {
  if (!json_.is_number()) fail("is not a number");
  value = json_.template get<double>();
}

template <class Json>
void BasicJsonPart<Json>::read(std::int32_t& value) const {
  value = integer<std::int32_t>();
}
template <class Json>
void BasicJsonPart<Json>::read(std::int64_t& value) const {
  value = integer<std::int64_t>();
}
template <class Json>
void BasicJsonPart<Json>::read(std::size_t& value) const {
  value = integer<std::size_t>();
}

template class BasicJsonPart<nlohmann::ordered_json>;
template class BasicJsonPart<nlohmann::json>;
template std::optional<std::int64_t> integerIn(const nlohmann::json&);
template std::optional<std::int64_t> integerIn(const nlohmann::ordered_json&);

}  // namespace pw
