#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "backends/torch/autograd/functions.h"
#include "engine/remote/reference.h"

namespace pw {

/// Bytes that only the function at the other end understands, such as a pickled Python object.
struct Opaque {
  std::string bytes;
  bool operator==(const Opaque&) const = default;
};

/// An object that stays where it is: the value of a reference only, which functions on its owner use.
struct Local {
  std::shared_ptr<void> object;
};

/// What remote calls take and give: nothing, numbers, texts, bytes, tensors, references, and lists and dicts of these.
struct RemoteValue {
  using List = std::vector<RemoteValue>;
  using Dict = std::vector<std::pair<std::string, RemoteValue>>;  ///< in the order it was made
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Opaque, TensorHandle, Reference, Local, List, Dict> content;

  RemoteValue() = default;
  template <class T>
  requires(!std::same_as<T, RemoteValue> && !std::integral<T> && !std::convertible_to<T, std::string>) RemoteValue(T value)
      : content(std::move(value)) {}                                                    // NOLINT(google-explicit-constructor)
  RemoteValue(bool value) : content(value) {}                                           // NOLINT(google-explicit-constructor)
  RemoteValue(std::integral auto value) : content(static_cast<std::int64_t>(value)) {}  // NOLINT(google-explicit-constructor)
  RemoteValue(std::string text) : content(std::move(text)) {}                           // NOLINT(google-explicit-constructor)
  RemoteValue(const char* text) : content(std::string(text)) {}                         // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool boolean() const { return as<bool>("a truth value"); }
  [[nodiscard]] std::int64_t integer() const { return as<std::int64_t>("an integer"); }
  [[nodiscard]] double number() const { return as<double>("a number"); }
  [[nodiscard]] const std::string& text() const { return as<std::string>("a text"); }
  [[nodiscard]] const std::string& bytes() const { return as<Opaque>("bytes").bytes; }
  [[nodiscard]] const TensorHandle& tensor() const { return as<TensorHandle>("a tensor"); }
  [[nodiscard]] const Reference& reference() const { return as<Reference>("a reference"); }
  [[nodiscard]] const std::shared_ptr<void>& object() const { return as<Local>("an object of this worker").object; }
  [[nodiscard]] const List& list() const { return as<List>("a list"); }
  [[nodiscard]] const Dict& dict() const { return as<Dict>("a dict"); }
  /// An element of a list; throws UsageError where there is none.
  [[nodiscard]] const RemoteValue& at(std::size_t index) const;
  /// An entry of a dict; throws UsageError where there is none.
  [[nodiscard]] const RemoteValue& at(const std::string& key) const;

 private:
  template <class T>
  [[nodiscard]] const T& as(const char* what) const {
    if (const T* found = std::get_if<T>(&content)) return *found;
    refuse(what);
  }
  [[noreturn]] void refuse(const char* what) const;  ///< UsageError: this is something else
};

}  // namespace pw
