#pragma once

#include <functional>
#include <memory>

#include "schedules/ids.h"

namespace pw {

/// CUDA graphs of what LibTorch does on a stream: see Device::record and Device::launch. `stream` is the calling thread's current one, and
/// not CUDA's default. Memory that `work` allocates on it comes from a pool of the recordings that share `pool`, which is made where it is
/// null. Other threads may go on with other streams. Cost: about that of doing the work, once; a launch some microseconds and less than one
/// per kernel.
[[nodiscard]] std::shared_ptr<void> recordGraph(int device, void* stream, const std::function<void()>& work, std::shared_ptr<void>& pool);
void launchGraph(const std::shared_ptr<void>& recording, void* stream);

/// Bytes that all recordings' pools need while their work runs, beyond the tensors in them that are alive: the allocator does not count
/// them.
[[nodiscard]] Bytes recordedBytes();

}  // namespace pw
