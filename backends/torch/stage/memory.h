#pragma once

#include "schedules/ids.h"

namespace pw {

/// Wraps LibTorch's CPU allocator in a counting one (once per process) and lets the C library keep large freed blocks, so that pages are
/// not faulted in again at each step.
void installCountingAllocator();

/// Bytes of CPU tensors alive in this process since then.
[[nodiscard]] Bytes tensorBytesAlive();

/// The peak since the last call (or since the allocator was installed); restarts from the current value.
[[nodiscard]] Bytes takePeakBytes();

/// The peak since the allocator was installed.
[[nodiscard]] Bytes mostTensorBytes();

}  // namespace pw
