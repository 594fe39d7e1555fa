#pragma once

#include <chrono>
#include <optional>

#include "backends/messages/global_id.h"

namespace pw {

/// The autograd context that is open in this thread, which calls carry along; none outside of one.
[[nodiscard]] ContextId currentContext();

/// Opens a context in this thread while it lives, and the one before again afterwards.
class WithContext {
 public:
  explicit WithContext(ContextId context);
  ~WithContext();
  WithContext(const WithContext&) = delete;
  WithContext& operator=(const WithContext&) = delete;

 private:
  ContextId before_;
};

/// When the caller of the function that this thread runs stops waiting for it; nothing outside of a call.
[[nodiscard]] std::optional<std::chrono::steady_clock::time_point> currentCallDeadline();

/// Says so in this thread while it lives.
class WithCallDeadline {
 public:
  explicit WithCallDeadline(std::optional<std::chrono::steady_clock::time_point> until);
  ~WithCallDeadline();
  WithCallDeadline(const WithCallDeadline&) = delete;
  WithCallDeadline& operator=(const WithCallDeadline&) = delete;

 private:
  std::optional<std::chrono::steady_clock::time_point> before_;
};

}  // namespace pw
