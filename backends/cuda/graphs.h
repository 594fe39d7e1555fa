#pragma once

#include <functional>
#include <memory>

#include "schedules/ids.h"

namespace pw {

/// CUDA graphs of LibTorch's work on a stream: see Device::record and Device::launch. `stream` is the calling thread's current stream, not
/// CUDA's default. Memory that `work` allocates on it comes from the memory pool of the recordings that share `pool`, which is created if
/// null. Other threads may use other streams meanwhile. Cost: recording takes about as long as doing the work once; a launch takes some
/// microseconds plus less than one per kernel.
[[nodiscard]] std::shared_ptr<void> recordGraph(int device, void* stream, const std::function<void()>& work, std::shared_ptr<void>& pool);
void launchGraph(const std::shared_ptr<void>& recording, void* stream);

/// Bytes that all recordings' pools need while their work runs, beyond the tensors in them that are alive: the allocator does not count
/// them.
[[nodiscard]] Bytes recordedBytes();

}  // namespace pw
