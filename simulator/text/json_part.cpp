#include "simulator/text/json_part.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "schedules/error.h"
#include "simulator/text/json_text.h"

namespace pw {

using Json = nlohmann::ordered_json;

void JsonDocument::fail(std::string_view what) const {
  constexpr std::size_t kLongest = 600;  // may contain text from the file
  what = what.substr(0, kLongest);
  throw UsageError(fmt::format("{} is not a usable {}: {}; {}.", source, kind, what,
                               cure.empty() ? fmt::format("{} the model again", kind) : std::string(cure)));
}

Json JsonDocument::parse(std::string_view text) const {
  return readJson<Json>(text, [this](const std::string& what) { fail(what); });
}

JsonPart JsonPart::operator[](const std::string& key) const {
  const std::string path = path_.empty() ? key : path_ + "." + key;
  const auto found = json_.find(key);  // the end if it is not an object
  if (found == json_.end()) document_.fail(fmt::format("it lacks `{}`", path));
  return {*found, document_, path};
}

JsonPart JsonPart::operator[](std::size_t index) const {
  const std::string path = fmt::format("{}[{}]", path_, index);
  if (!json_.is_array() || index >= json_.size()) document_.fail(fmt::format("it lacks `{}`", path));
  return {json_[index], document_, path};
}

bool JsonPart::has(const std::string& key) const { return json_.contains(key); }

std::size_t JsonPart::size() const {
  if (!json_.is_array()) document_.fail(fmt::format("`{}` is not a list", path_));
  return json_.size();
}

/// `get` alone would truncate a number that is too large or not an integer.
template <class Int>
Int JsonPart::integer() const {
  const bool fits = json_.is_number_unsigned() ? std::in_range<Int>(json_.get<std::uint64_t>())
                                               : json_.is_number_integer() && std::in_range<Int>(json_.get<std::int64_t>());
  if (!fits) document_.fail(fmt::format("`{}` is not an integer in range{}", path_, json_.is_number() ? ": " + json_.dump() : ""));
  return json_.get<Int>();
}

void JsonPart::read(std::string& value) const {
  if (!json_.is_string()) document_.fail(fmt::format("`{}` is not a string", path_));
  value = json_.get<std::string>();
}

void JsonPart::read(bool& value) const {
  if (!json_.is_boolean()) document_.fail(fmt::format("`{}` is not true or false", path_));
  value = json_.get<bool>();
}

void JsonPart::read(double& value) const {
  if (!json_.is_number()) document_.fail(fmt::format("`{}` is not a number", path_));
  value = json_.get<double>();
}

void JsonPart::read(std::int32_t& value) const { value = integer<std::int32_t>(); }
void JsonPart::read(std::int64_t& value) const { value = integer<std::int64_t>(); }
void JsonPart::read(std::size_t& value) const { value = integer<std::size_t>(); }

}  // namespace pw
