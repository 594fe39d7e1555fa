#pragma once

#include <string>

#include "backends/cuda/backend.h"
#include "backends/messages/device.h"

namespace pw {

/// The GPU that LibTorch uses, for the engine; after `prepareGpu`. Streams and events are CUDA's, as untyped pointers.
[[nodiscard]] std::string prepareGpu(int device, bool tf32, GpuPart part);
/// Multiprocessors that this process computes on.
[[nodiscard]] int multiprocessors();
[[nodiscard]] const Device& gpu();
/// The stream that operators run on.
[[nodiscard]] void* computeStream();
/// When an event with timing was reached, on the host's monotonic clock [ns], accurate to about a microsecond; after `Device::finish`.
[[nodiscard]] Ns timeOfEvent(void* event);
/// Whether an address lies in a GPU's memory.
[[nodiscard]] bool isOnDevice(const void* address);
/// Number of GPUs that CUDA gives this process; 0 also without a driver.
[[nodiscard]] int gpuCount();
/// See CudaBackend::identity.
[[nodiscard]] std::string gpuIdentity(int device);

}  // namespace pw
