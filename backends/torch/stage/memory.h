#pragma once

#include "schedules/ids.h"

namespace pw {

/// Puts a counting allocator before LibTorch's own for CPU tensors (once per process) and lets the C library keep large freed blocks, so
/// that each step does not fault its pages in again.
void installCountingAllocator();

/// Bytes of CPU tensors alive in this process since then.
[[nodiscard]] Bytes tensorBytesAlive();

/// The most that was alive at once since the last call (or since the allocator was installed); begins again from what is alive now.
[[nodiscard]] Bytes takePeakBytes();

}  // namespace pw
