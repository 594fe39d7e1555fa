#include "backends/pt2/json.h"

#include <fmt/format.h>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "schedules/error.h"
#include "simulator/text/json_part.h"
#include "simulator/text/json_text.h"

namespace pw::pt2 {
namespace {

/// A float hint as an integer, 0 where it has none.
std::int64_t roundedHint(double number) {
  constexpr double kSafe = 9e18;
  return std::isfinite(number) && std::abs(number) < kSafe ? std::llround(number) : 0;
}

std::int64_t hintOf(const Json& value, std::string_view what, const std::string& where) {
  const Tagged hint = asTagged(value, what, where);
  if (hint.kind == "as_bool") {
    return asBool(hint.value, what, where) ? 1 : 0;
  }
  if (hint.kind == "as_float") {
    return roundedHint(asNumber(hint.value, what, where));
  }
  return asInteger(hint.value, what, where);
}

}  // namespace

void damaged(const std::string& where, std::string_view what) {
  constexpr std::size_t kLongest = 600;  // names of the archive may be in it
  throw UsageError(fmt::format("{} {}; the archive is damaged or of an unknown form, export it again with resources/export_model.py",
                               where.substr(0, kLongest), what.substr(0, kLongest)));
}

Json parseJson(const std::string& text, const std::string& where) {
  Json parsed = readJson<Json>(text, [&](const std::string& what) { damaged(where, "is unusable: " + what); });
  if (!parsed.is_object()) damaged(where, "is not a JSON object");
  return parsed;
}

std::optional<Json> tryParseJson(const std::string& text) {
  bool refused = false;
  Json parsed = readJson<Json>(text, [&](const std::string&) { refused = true; });
  return refused ? std::nullopt : std::optional<Json>(std::move(parsed));
}

const Json& member(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    damaged(where, fmt::format("has something that is not an object where `{}` should be", key));
  }
  const auto found = object.find(key);
  if (found == object.end()) {
    damaged(where, fmt::format("has no `{}`", key));
  }
  return *found;
}

const Json* optionalMember(const Json& object, const char* key, const std::string& where) {
  if (!object.is_object()) {
    damaged(where, fmt::format("has something that is not an object where `{}` should be", key));
  }
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

const Json& asArray(const Json& value, std::string_view what, const std::string& where) {
  if (!value.is_array()) {
    damaged(where, fmt::format("has no list in `{}`", what));
  }
  return value;
}

const Json& asObject(const Json& value, std::string_view what, const std::string& where) {
  if (!value.is_object()) {
    damaged(where, fmt::format("has no object in `{}`", what));
  }
  return value;
}

const std::string& asText(const Json& value, std::string_view what, const std::string& where) {
  const auto* text = value.get_ptr<const Json::string_t*>();
  if (text == nullptr) {
    damaged(where, fmt::format("has no text in `{}`", what));
  }
  return *text;
}

std::int64_t asInteger(const Json& value, std::string_view what, const std::string& where) {
  const auto number = integerIn<std::int64_t>(value);
  if (!number) damaged(where, fmt::format("has no 64-bit integer in `{}`", what));
  return *number;
}

bool asBool(const Json& value, std::string_view what, const std::string& where) {
  if (!value.is_boolean()) {
    damaged(where, fmt::format("has no true or false in `{}`", what));
  }
  return value.get<bool>();
}

double asNumber(const Json& value, std::string_view what, const std::string& where) {
  if (value.is_number()) {
    return value.get<double>();
  }
  const std::string text = value.is_string() ? value.get<std::string>() : std::string();
  if (text == "Infinity") {
    return std::numeric_limits<double>::infinity();
  }
  if (text == "-Infinity") {
    return -std::numeric_limits<double>::infinity();
  }
  if (text != "NaN") {
    damaged(where, fmt::format("has no number in `{}`", what));
  }
  return std::numeric_limits<double>::quiet_NaN();
}

Tagged asTagged(const Json& value, std::string_view what, const std::string& where) {
  if (!value.is_object() || value.size() != 1) {
    damaged(where, fmt::format("has no single-member object in `{}`", what));
  }
  return {value.begin().key(), value.begin().value()};
}

SymbolicInt asSymbolic(const Json& value, std::string_view what, const std::string& where) {
  const Tagged tagged = asTagged(value, what, where);
  if (tagged.kind != "as_expr") {
    return {hintOf(value, what, where), {}};
  }
  SymbolicInt number;
  number.expression = asText(member(tagged.value, "expr_str", where), "expr_str", where);
  if (number.expression.empty()) {
    damaged(where, fmt::format("has an empty expression in `{}`", what));
  }
  if (const Json* hint = optionalMember(tagged.value, "hint", where)) {
    number.hint = hintOf(*hint, what, where);
  }
  return number;
}

DType asDType(const Json& value, const std::string& where) {
  const std::int64_t code = asInteger(value, "dtype", where);
  if (code < 1 || code > static_cast<std::int64_t>(DType::BFloat16)) {
    throw UsageError(
        fmt::format("{} has element type code {}, which Pipewright does not support (no 16- to 64-bit unsigned, 8-bit "
                    "floating or quantised types); convert the model to float32, float16 or bfloat16",
                    where, code));
  }
  return static_cast<DType>(code);
}

TensorMeta asTensorMeta(const Json& value, const std::string& where) {
  TensorMeta meta;
  meta.dtype = asDType(member(value, "dtype", where), where);
  for (const Json& size : asArray(member(value, "sizes", where), "sizes", where)) {
    meta.sizes.push_back(asSymbolic(size, "sizes", where));
    if (meta.sizes.back().hint < 0) {
      damaged(where, "has a negative size");
    }
  }
  meta.requiresGrad = asBool(member(value, "requires_grad", where), "requires_grad", where);
  std::vector<std::int64_t> sizes, strides;
  for (const SymbolicInt& size : meta.sizes) sizes.push_back(size.hint);
  for (const Json& stride : asArray(member(value, "strides", where), "strides", where)) {
    strides.push_back(asSymbolic(stride, "strides", where).hint);
  }
  if (strides.size() != sizes.size()) damaged(where, "has another number of strides than of sizes");
  meta.memoryOrder = memoryOrderOf(sizes, strides);
  return meta;
}

}  // namespace pw::pt2
