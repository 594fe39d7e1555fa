#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

#include "schedules/error.h"

namespace pw {

/// The answer no: one sentence that says what is impossible, where, and the cure, as that of an Error.
struct Impossible {
  std::string why;

  bool operator==(const Impossible&) const = default;
};

/// The result, or why there is none. For questions of which "no" is a usual answer, such as whether a plan exists; what is broken
/// still throws.
template <class T>
class [[nodiscard]] Answer {
 public:
  Answer(T value) : held_(std::move(value)) {}               // NOLINT(google-explicit-constructor): `return value;`
  Answer(Impossible refusal) : held_(std::move(refusal)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] explicit operator bool() const { return std::holds_alternative<T>(held_); }
  /// Only where there is a value, which is asserted.
  [[nodiscard]] const T& operator*() const& { return only<T>(held_); }
  [[nodiscard]] T& operator*() & { return only<T>(held_); }
  [[nodiscard]] T&& operator*() && { return std::move(only<T>(held_)); }
  [[nodiscard]] const T* operator->() const { return &only<T>(held_); }
  [[nodiscard]] T* operator->() { return &only<T>(held_); }
  /// Only where there is none, which is asserted.
  [[nodiscard]] const Impossible& refusal() const { return only<Impossible>(held_); }

  /// The value, for callers that cannot continue without it. Throws UsageError with the reason where there is none.
  [[nodiscard]] T orThrow() && {
    if (const auto* no = std::get_if<Impossible>(&held_)) throw UsageError(no->why);
    return std::move(*std::get_if<T>(&held_));
  }

 private:
  template <class Held, class Variant>
  [[nodiscard]] static auto& only(Variant& held) {
    auto* part = std::get_if<Held>(&held);
    assert(part != nullptr);
    return *part;
  }

  std::variant<T, Impossible> held_;
};

/// Throws UsageError with the reason.
[[noreturn]] inline void refuse(const Impossible& refusal) { throw UsageError(refusal.why); }

}  // namespace pw
