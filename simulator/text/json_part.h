#pragma once

// Internal to the readers of files: JSON access whose every failure is a UsageError that names the file and the place.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// The file being read: where it comes from and what it should be, such as `plan` or `profile`.
struct JsonDocument {
  std::string source;
  std::string_view kind;
  std::string_view cure = {};  ///< what to do about a bad file; if empty `<kind> the model again`

  /// `plan.json is not a usable plan: <what>; plan the model again.`
  [[noreturn]] void fail(std::string_view what) const;
  /// The text as JSON, within the limits of `readJson`.
  [[nodiscard]] nlohmann::ordered_json parse(std::string_view text) const;
  /// The same for objects of any number of members, whose order is lost.
  [[nodiscard]] nlohmann::json parseUnordered(std::string_view text) const;
};

/// A number of JSON as an integer; nothing for anything else, and where it would be rounded or truncated.
template <class Int, class Json>
[[nodiscard]] std::optional<Int> integerIn(const Json& json);

/// A value in a document and its place there: `partition.stages[2].begin`. Keeps references: the document must outlive it. `Json` is
/// nlohmann::ordered_json or nlohmann::json.
template <class Json>
class BasicJsonPart {
 public:
  BasicJsonPart(const Json& json, const JsonDocument& document, std::string path = {})
      : json_(json), document_(document), path_(std::move(path)) {}

  [[nodiscard]] const Json& json() const { return json_; }
  [[nodiscard]] BasicJsonPart operator[](const std::string& key) const;
  [[nodiscard]] BasicJsonPart operator[](std::size_t index) const;
  /// Whether it is an object with this member.
  [[nodiscard]] bool has(const std::string& key) const;
  /// Number of elements of a list.
  [[nodiscard]] std::size_t size() const;
  /// The names of an object's members, in their order.
  [[nodiscard]] std::vector<std::string> keys() const;
  /// Refuses the document: it says what is wrong with this value, `is negative`.
  [[noreturn]] void fail(std::string_view what) const;

  /// The elements of a list, each converted by `read`.
  template <class Read>
  [[nodiscard]] auto list(const Read& read) const {
    std::vector<decltype(read(*this))> elements;
    for (std::size_t i = 0, count = size(); i < count; ++i) elements.push_back(read((*this)[i]));
    return elements;
  }
  template <class T>
  [[nodiscard]] std::vector<T> listOf() const {
    return list([](const BasicJsonPart& part) { return part.template as<T>(); });
  }

  /// A std::string, bool, double, int, std::int64_t or std::size_t, or one of the distinct integer types. Integers are never rounded or
  /// truncated.
  template <class T>
  [[nodiscard]] T as() const {
    T value{};
    read(value);
    return value;
  }
  /// An integer from `low` to `high`.
  template <class Number = std::int64_t>
  [[nodiscard]] Number within(std::int64_t low, std::int64_t high) const {
    return static_cast<Number>(bounded(low, high));
  }

 private:
  [[nodiscard]] std::int64_t bounded(std::int64_t low, std::int64_t high) const;
  void read(std::string& value) const;
  void read(bool& value) const;
  void read(double& value) const;
  void read(std::int32_t& value) const;
  void read(std::int64_t& value) const;
  void read(std::size_t& value) const;
  template <class Tag>
  void read(Id<Tag>& value) const {
    read(value.value);
  }
  template <class Tag>
  void read(Quantity<Tag>& value) const {
    read(value.value);
  }
  template <class Int>
  [[nodiscard]] Int integer() const;

  const Json& json_;
  const JsonDocument& document_;
  std::string path_;
};

using JsonPart = BasicJsonPart<nlohmann::ordered_json>;

extern template class BasicJsonPart<nlohmann::ordered_json>;
extern template class BasicJsonPart<nlohmann::json>;
extern template std::optional<std::int64_t> integerIn(const nlohmann::json&);
extern template std::optional<std::int64_t> integerIn(const nlohmann::ordered_json&);

}  // namespace pw
