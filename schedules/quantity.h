#pragma once

#include <compare>
#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>

namespace pw {

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

/// A whole number of one unit, so that a time cannot pass for a size. An integer literal converts by itself (`Ns gap = 0`); every other
/// conversion is explicit (`Ns(count)`, `time.value`, `static_cast<double>(time)`; a double is truncated towards 0). Sums, differences and
/// multiples by a whole number keep the unit; a quantity divided by one of the same unit is a plain number. It compares with quantities of
/// its unit and with plain integers. As with std::int64_t, overflow is undefined: those who read files bound what they accept.
template <class Tag>
struct Quantity {
  std::int64_t value = 0;

  constexpr Quantity() = default;
  template <std::same_as<int> T>
  consteval Quantity(T literal) : value(literal) {}  // NOLINT(google-explicit-constructor): only a constant converts by itself
  template <std::same_as<int> T>
  requires Arithmetic<T>  // more constrained than the literal, so that explicit conversions of variables choose it
  constexpr explicit Quantity(T number) : value(number) {}
  template <Arithmetic T>
  requires(!std::same_as<T, int>) constexpr explicit Quantity(T number) : value(static_cast<std::int64_t>(number)) {}

  template <Arithmetic T>
  constexpr explicit operator T() const {
    return static_cast<T>(value);
  }

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value + b.value); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value - b.value); }
  constexpr Quantity operator-() const { return Quantity(-value); }
  constexpr Quantity operator+() const { return *this; }
  template <std::integral T>
  friend constexpr Quantity operator*(Quantity a, T times) {
    return Quantity(a.value * static_cast<std::int64_t>(times));
  }
  template <std::integral T>
  friend constexpr Quantity operator*(T times, Quantity a) {
    return a * times;
  }
  template <std::integral T>
  friend constexpr Quantity operator/(Quantity a, T parts) {
    return Quantity(a.value / static_cast<std::int64_t>(parts));
  }
  template <std::integral T>
  friend constexpr Quantity operator%(Quantity a, T parts) {
    return Quantity(a.value % static_cast<std::int64_t>(parts));
  }
  friend constexpr std::int64_t operator/(Quantity a, Quantity b) { return a.value / b.value; }
  friend constexpr Quantity operator%(Quantity a, Quantity b) { return Quantity(a.value % b.value); }

  friend constexpr Quantity operator<<(Quantity a, int bits) { return Quantity(a.value << bits); }

  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }
  constexpr Quantity& operator%=(Quantity other) { return *this = *this % other; }
  template <std::integral T>
  constexpr Quantity& operator*=(T times) {
    return *this = *this * times;
  }
  template <std::integral T>
  constexpr Quantity& operator/=(T parts) {
    return *this = *this / parts;
  }
  constexpr Quantity& operator++() {
    ++value;
    return *this;
  }
  constexpr Quantity& operator--() {
    --value;
    return *this;
  }

  constexpr bool operator==(const Quantity&) const = default;
  constexpr auto operator<=>(const Quantity&) const = default;
  template <std::integral T>
  friend constexpr bool operator==(Quantity a, T number) {
    return std::cmp_equal(a.value, number);
  }
  template <std::integral T>
  friend constexpr std::strong_ordering operator<=>(Quantity a, T number) {
    return std::cmp_less(a.value, number) ? std::strong_ordering::less : std::cmp_greater(a.value, number) <=> false;
  }

  friend constexpr Quantity abs(Quantity a) { return a.value < 0 ? -a : a; }
  friend constexpr Quantity midpoint(Quantity a, Quantity b) { return Quantity(std::midpoint(a.value, b.value)); }

  template <class Char>
  friend std::basic_ostream<Char>& operator<<(std::basic_ostream<Char>& out, Quantity quantity) {
    return out << quantity.value;
  }
};

/// The quantity ≥ 0 divided by `parts` ≥ 1, rounded up.
template <class Tag, std::integral T>
[[nodiscard]] constexpr Quantity<Tag> dividedUp(Quantity<Tag> quantity, T parts) {
  const Quantity<Tag> part = quantity / parts;
  return part * parts == quantity ? part : part + 1;
}
/// The quantity ≥ 0 divided by `parts` ≥ 1, rounded to the nearest; halves up.
template <class Tag, std::integral T>
[[nodiscard]] constexpr Quantity<Tag> dividedToNearest(Quantity<Tag> quantity, T parts) {
  const auto count = static_cast<std::int64_t>(parts);
  const Quantity<Tag> part = quantity / count;
  return (quantity - part * count).value >= count - count / 2 ? part + 1 : part;
}

/// For JSON (found by argument-dependent lookup, so that no JSON header is needed here).
template <class Json, class Tag>
void to_json(Json& json, const Quantity<Tag>& quantity) {
  json = quantity.value;
}

template <class Json, class Tag>
void from_json(const Json& json, Quantity<Tag>& quantity) {
  json.get_to(quantity.value);
}

}  // namespace pw

template <class Tag>
struct std::hash<pw::Quantity<Tag>> {
  std::size_t operator()(pw::Quantity<Tag> quantity) const noexcept { return std::hash<std::int64_t>{}(quantity.value); }
};

template <class Tag>
struct std::numeric_limits<pw::Quantity<Tag>> : std::numeric_limits<std::int64_t> {
  static constexpr pw::Quantity<Tag> min() noexcept { return pw::Quantity<Tag>(std::numeric_limits<std::int64_t>::min()); }
  static constexpr pw::Quantity<Tag> lowest() noexcept { return min(); }
  static constexpr pw::Quantity<Tag> max() noexcept { return pw::Quantity<Tag>(std::numeric_limits<std::int64_t>::max()); }
};
