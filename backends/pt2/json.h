#pragma once

// Internal to the archive reader: JSON access whose every failure is a UsageError naming the archive and the place.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "simulator/model/model_graph.h"

namespace pw::pt2 {

using Json = nlohmann::json;

/// Throws `<where> <what>; the archive is damaged or …`.
[[noreturn]] void damaged(const std::string& where, std::string_view what);

/// Reads an object within the limits of `readJson`. `where` names the archive and entry.
[[nodiscard]] Json parseJson(const std::string& text, const std::string& where);

/// The same for any text; nothing if it is not JSON or exceeds the limits.
[[nodiscard]] std::optional<Json> tryParseJson(const std::string& text);

[[nodiscard]] const Json& member(const Json& object, const char* key, const std::string& where);
/// The member, or nullptr where it is absent or null.
[[nodiscard]] const Json* optionalMember(const Json& object, const char* key, const std::string& where);

[[nodiscard]] const Json& asArray(const Json& value, std::string_view what, const std::string& where);
[[nodiscard]] const Json& asObject(const Json& value, std::string_view what, const std::string& where);
[[nodiscard]] const std::string& asText(const Json& value, std::string_view what, const std::string& where);
[[nodiscard]] std::int64_t asInteger(const Json& value, std::string_view what, const std::string& where);
[[nodiscard]] bool asBool(const Json& value, std::string_view what, const std::string& where);
/// A JSON number, or torch's texts `Infinity`, `-Infinity`, `NaN`.
[[nodiscard]] double asNumber(const Json& value, std::string_view what, const std::string& where);

/// Torch's tagged unions are objects with one member, such as `{"as_int": 3}`.
struct Tagged {
  std::string_view kind;
  const Json& value;
};
[[nodiscard]] Tagged asTagged(const Json& value, std::string_view what, const std::string& where);

/// `{"as_int": 3}` or `{"as_expr": {"expr_str": …, "hint": …}}`; booleans and floats too (hint 0 or 1, or rounded).
[[nodiscard]] SymbolicInt asSymbolic(const Json& value, std::string_view what, const std::string& where);
/// One of torch's scalar type codes; refuses those without a DType.
[[nodiscard]] DType asDType(const Json& value, const std::string& where);
[[nodiscard]] TensorMeta asTensorMeta(const Json& value, const std::string& where);

}  // namespace pw::pt2
