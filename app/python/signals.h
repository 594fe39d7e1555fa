#pragma once

#include <chrono>
#include <exception>
#include <functional>

namespace pw::python {

/// Ends what polls it, as the search for an order does, on Ctrl-C in the main thread, which then raises what Python's handler raised. The
/// calling thread has released the GIL.
class PendingSignals {
 public:
  /// As of `OrderEffort::shouldContinue`; refers to this object. Cost: a look at the clock, and every 50 ms one at Python's signals.
  [[nodiscard]] std::function<bool(double share)> shouldContinue();
  /// Throws what a handler raised meanwhile.
  void rethrow() const;

 private:
  [[nodiscard]] bool poll();

  std::chrono::steady_clock::time_point last_{};  ///< `shouldContinue` is called by one thread at a time
  std::exception_ptr raised_;
};

}  // namespace pw::python
