#pragma once

// Values as bytes, for a file or for another rank: integers little-endian, one after the other, without gaps.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "schedules/quantity.h"

namespace pw {

/// Appends values. A string is its size in 8 bytes and its characters; a double its IEEE bits; an optional double a bool and a double.
class Packer {
 public:
  template <std::integral T>
  void add(T number) {
    using Bits = std::make_unsigned_t<std::conditional_t<std::same_as<T, bool>, std::uint8_t, T>>;
    const auto bits = static_cast<Bits>(number);
    char bytes[sizeof(T)];
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes[i] = static_cast<char>(static_cast<std::uint64_t>(bits) >> (8 * i) & 0xFFU);
    bytes_.append(bytes, sizeof(T));
  }
  template <class Tag>
  void add(Quantity<Tag> quantity) {
    add(quantity.value);
  }
  void add(double number) { add(std::bit_cast<std::uint64_t>(number)); }
  void add(std::string_view text) {
    add(std::uint64_t{text.size()});
    addRaw(text);
  }
  void add(const std::string& text) { add(std::string_view(text)); }
  void add(const std::optional<double>& number) {
    add(number.has_value());
    add(number.value_or(0));
  }
  /// The characters alone.
  void addRaw(std::string_view text) { bytes_ += text; }

  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  [[nodiscard]] std::string finish() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

/// Reads what a Packer wrote, in the same order. Safe for any bytes: beyond the end a number is 0 and a string empty, and `isSound` is
/// false from then on. Callers read everything, then refuse it if it is not sound. The bytes must outlive it.
class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : bytes_(bytes) {}

  template <std::integral T>
  void take(T& number) {
    const std::string_view taken = raw(sizeof(T));
    std::uint64_t bits = 0;
    if (!taken.empty()) {
      for (std::size_t i = sizeof(T); i-- > 0;) bits = bits << 8U | static_cast<unsigned char>(taken[i]);
    }
    number = static_cast<T>(bits);
  }
  template <class Tag>
  void take(Quantity<Tag>& quantity) {
    take(quantity.value);
  }
  void take(double& number) { number = std::bit_cast<double>(next<std::uint64_t>()); }
  void take(std::string& value) { value = text(); }
  void take(std::optional<double>& number) {
    const bool known = next<bool>();
    const auto value = next<double>();
    number = known ? std::optional(value) : std::nullopt;
  }
  template <class T>
  [[nodiscard]] T next() {
    T value{};
    take(value);
    return value;
  }
  /// An integer in [low, high]; `low`, and no longer sound, where it is outside or missing.
  template <class T>
  [[nodiscard]] T within(T low, T high) {
    const T number = next<T>();
    sound_ = sound_ && low <= number && number <= high;
    return sound_ ? number : low;
  }
  /// A string, as a view of the bytes.
  [[nodiscard]] std::string_view text() { return raw(next<std::uint64_t>()); }
  /// That many characters.
  [[nodiscard]] std::string_view raw(std::uint64_t count) {
    sound_ = sound_ && count <= bytes_.size();
    const std::string_view taken = bytes_.substr(0, sound_ ? static_cast<std::size_t>(count) : 0);
    bytes_.remove_prefix(taken.size());
    return taken;
  }

  [[nodiscard]] std::size_t left() const { return sound_ ? bytes_.size() : 0; }
  /// Whether everything so far was there and in its range.
  [[nodiscard]] bool isSound() const { return sound_; }
  /// Whether it is sound and nothing is left.
  [[nodiscard]] bool isComplete() const { return sound_ && bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool sound_ = true;
};

}  // namespace pw
