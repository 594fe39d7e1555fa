#pragma once

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

}  // namespace pw
