#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "backends/messages/communicator.h"
#include "schedules/ids.h"
#include "simulator/model/model_graph.h"

namespace pw {

/// Nanoseconds of the host's monotonic clock: the same for all processes of a host.
[[nodiscard]] Ns monotonicNow();

/// A moment of a device's work, a number of the device's making: see Device::timestamp.
using Timestamp = std::int64_t;

/// Where a stage's tensors lie and its operators run: this host's memory and cores, or one GPU. A table of functions, so that nothing of
/// CUDA is loaded where none is used. What the host is asked for is done when the call returns; a GPU does it later, in the order it was
/// asked for (on its compute stream). `Buffer`s are the device's own unless said otherwise. All throw Error when the device fails.
struct Device {
  int index = -1;  ///< CUDA's number of the device; −1: the host

  /// Memory that messages arrive in. May be written to at once, whatever the device still has to do.
  HeldBuffer (*allocate)(std::size_t bytes) = nullptr;
  /// Same sizes; either may lie on the host. Done on return where one does.
  void (*copy)(Buffer into, Buffer from) = nullptr;
  void (*addInto)(DType dtype, Buffer into, Buffer what) = nullptr;                                  ///< see numbers.h
  double (*sumOfSquares)(DType dtype, Buffer buffer, std::chrono::milliseconds deadline) = nullptr;  ///< throws Error at the deadline

  /// The moment when all that was asked for so far is done. On the host: now, as `timeOf` returns it.
  Timestamp (*timestamp)() = nullptr;
  /// That moment on the host's monotonic clock [ns]; after a `finish`, and until `forgetTimestamps`.
  Ns (*timeOf)(Timestamp timestamp) = nullptr;
  /// Ends the life of all marks so far. Who makes marks calls it once a step, or they pile up.
  void (*forgetTimestamps)() = nullptr;
  /// Waits until all that was asked for is done, calling `meanwhile` (which may be empty) again and again. Throws Error at the deadline,
  /// and what that throws.
  void (*finish)(std::chrono::milliseconds deadline, const std::function<void()>& meanwhile) = nullptr;

  /// Keeps what `work` asks for instead of doing it (a CUDA graph): `launch` does it, any number of times, on the same memory. What `work`
  /// allocates stays the recording's while that lives, so recordings that do not run at the same time may share: those with the same
  /// `pool`, launched in the order they were recorded. Throws Error saying why work cannot be kept (it waits for the device); nothing of it
  /// is done then. Both null where a device cannot do this.
  std::shared_ptr<void> (*record)(const std::function<void()>& work, std::shared_ptr<void>& pool) = nullptr;
  void (*launch)(const std::shared_ptr<void>& recording) = nullptr;

  /// Busies compute for that time; null on the host.
  void (*spin)(Ns duration) = nullptr;

  /// Names what is asked for from now on in a profiler's timeline, until a null pointer ends that; null where there is none.
  void (*name)(const char* what) = nullptr;

  /// Bytes of tensors in this process: alive now, and the most since the last call. Null on the host: its module counts.
  Bytes (*bytesAlive)() = nullptr;
  Bytes (*takePeakBytes)() = nullptr;
};

[[nodiscard]] const Device& hostDevice();

}  // namespace pw
