#include "app/python/signals.h"

#include <pybind11/pybind11.h>

namespace pw::python {

std::function<bool(double share)> PendingSignals::shouldContinue() {
  return [this](double) { return poll(); };
}

void PendingSignals::rethrow() const {
  if (raised_) std::rethrow_exception(raised_);
}

bool PendingSignals::poll() {
  constexpr std::chrono::milliseconds kInterval(50);
  const auto now = std::chrono::steady_clock::now();
  if (raised_ || now - last_ < kInterval) return !raised_;
  last_ = now;
  const pybind11::gil_scoped_acquire held;
  if (PyErr_CheckSignals() != 0) raised_ = std::make_exception_ptr(pybind11::error_already_set());  // 0 in other threads than the main one
  return !raised_;
}

}  // namespace pw::python
