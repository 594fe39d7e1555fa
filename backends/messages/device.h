#pragma once

#include <chrono>
#include <compare>
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

/// A moment in the work of a device: see Device::timestamp. Only the device knows what its number means.
struct Timestamp {
  std::int64_t number = 0;

  auto operator<=>(const Timestamp&) const = default;
};

/// Where a stage's tensors lie and its operators run: this host's memory and cores, or one GPU. A table of functions, so that CUDA is not
/// loaded unless it is used. On the host, work is done when a call returns; on a GPU it is enqueued on the compute stream and done later,
/// in order. `Buffer`s are on the device unless said otherwise. All functions throw Error when the device fails.
struct Device {
  int index = -1;  ///< CUDA's number of the device; −1: the host

  /// Memory for messages to arrive in. May be written to at once, whatever work is still pending on the device.
  HeldBuffer (*allocate)(std::size_t bytes) = nullptr;
  /// Same sizes; either may lie on the host. Done on return where one does.
  void (*copy)(Buffer into, Buffer from) = nullptr;
  void (*addInto)(DType dtype, Buffer into, Buffer what) = nullptr;                                  ///< see buffer_math.h
  double (*sumOfSquares)(DType dtype, Buffer buffer, std::chrono::milliseconds deadline) = nullptr;  ///< throws Error at the deadline

  /// The moment when all work enqueued so far is done. On the host: now, as `timeOf` returns it.
  Timestamp (*timestamp)() = nullptr;
  /// That moment on the host's monotonic clock [ns]; after a `finish`, and until `forgetTimestamps`.
  Ns (*timeOf)(Timestamp timestamp) = nullptr;
  /// Invalidates all timestamps so far. Must be called once per step if timestamps are taken, or they accumulate.
  void (*forgetTimestamps)() = nullptr;
  /// Waits until all enqueued work is done, calling `meanwhile` (may be empty) repeatedly. Throws Error at the deadline, and whatever
  /// `meanwhile` throws.
  void (*finish)(std::chrono::milliseconds deadline, const std::function<void()>& meanwhile) = nullptr;

  /// Records the work that `work` enqueues instead of doing it (a CUDA graph): `launch` does it, any number of times, on the same memory.
  /// Memory that `work` allocates belongs to the recording as long as that lives; recordings that never run at the same time may share it:
  /// those with the same `pool`, launched in the order in which they were recorded. Throws Error with the reason if work cannot be recorded
  /// (because it waits for the device); nothing is done then. Both are null if a device cannot record.
  std::shared_ptr<void> (*record)(const std::function<void()>& work, std::shared_ptr<void>& pool) = nullptr;
  void (*launch)(const std::shared_ptr<void>& recording) = nullptr;

  /// Keeps the compute stream busy for that time; null on the host.
  void (*spin)(Ns duration) = nullptr;

  /// Names the work enqueued from now on in a profiler's timeline, until it is called with a null pointer; null if there is no profiler.
  void (*name)(const char* what) = nullptr;

  /// Bytes of tensors in this process: alive now, and the most since the last call. Null on the host: its module counts.
  Bytes (*bytesAlive)() = nullptr;
  Bytes (*takePeakBytes)() = nullptr;
};

[[nodiscard]] const Device& hostDevice();

}  // namespace pw
