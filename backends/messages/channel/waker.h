#pragma once

#include "backends/host/fd.h"

namespace pw {

/// Wakes a thread that polls its descriptor; any thread may call it.
class Waker {
 public:
  /// Throws Error if the system has no descriptor left.
  Waker();
  /// The descriptor is readable from now on.
  void wake() const;
  /// It is not any more.
  void clear() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  Fd fd_;
};

}  // namespace pw
