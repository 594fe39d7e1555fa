#pragma once

// Internal to the readers of files: JSON access whose every failure is a UsageError that names the file and the place.

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
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
};

/// A value in a document and its place there: `partition.stages[2].begin`. Keeps references: the document must outlive it.
class JsonPart {
 public:
  JsonPart(const nlohmann::ordered_json& json, const JsonDocument& document, std::string path = {})
      : json_(json), document_(document), path_(std::move(path)) {}

  [[nodiscard]] const nlohmann::ordered_json& json() const { return json_; }
  [[nodiscard]] JsonPart operator[](const std::string& key) const;
  [[nodiscard]] JsonPart operator[](std::size_t index) const;
  /// Whether it is an object with this member.
  [[nodiscard]] bool has(const std::string& key) const;
  /// Number of elements of a list.
  [[nodiscard]] std::size_t size() const;

  /// The elements of a list, each converted by `read`.
  template <class Read>
  [[nodiscard]] auto list(const Read& read) const {
    std::vector<decltype(read(*this))> elements;
    for (std::size_t i = 0, count = size(); i < count; ++i) elements.push_back(read((*this)[i]));
    return elements;
  }
  template <class T>
  [[nodiscard]] std::vector<T> listOf() const {
    return list([](const JsonPart& part) { return part.as<T>(); });
  }

  /// A std::string, bool, double, int, std::int64_t or std::size_t, or one of the distinct integer types. Integers are never rounded or
  /// truncated.
  template <class T>
  [[nodiscard]] T as() const {
    T value{};
    read(value);
    return value;
  }

 private:
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
  template <class Int>
  [[nodiscard]] Int integer() const;

  const nlohmann::ordered_json& json_;
  const JsonDocument& document_;
  std::string path_;
};

}  // namespace pw
