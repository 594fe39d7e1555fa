#pragma once

#include <chrono>
#include <functional>

#include "backends/messages/device_messages.h"

namespace pw {

/// Messages and collectives between GPUs by NCCL: for each direction between two ranks a communicator of two, for each group one of its
/// own, each with a stream of high priority, made at first use. Only `order`, `abort` and the destructor block, so that two ranks can
/// connect in both directions at once; every call but `times` and `stateOf` makes progress, and so does a separate thread. `host`
/// carries what NCCL needs to connect, by `kNcclIdTags`, and must outlive the links. `computeStream` is a CUDA stream of the calling
/// thread's device; `timeOf` turns a CUDA event into a time on the host's monotonic clock [ns].
///
/// A receive may write to its buffer at once, whatever compute is pending on that memory: see Device::allocate. Operations of a link or
/// group run in order, as NCCL matches them by order. Collectives exist for float16, bfloat16, float32, float64, uint8, int8, int32 and
/// int64. Errors name the ranks and the oldest operation of the link that is not done.
///
/// Cost: the first use of a link takes some hundred milliseconds, in parallel with compute; an operation some ten microseconds, as NCCL
/// starts a thread for each non-blocking one. The destructor waits some seconds at most for the peers to end too.
[[nodiscard]] DeviceLinks ncclLinks(Communicator& host, std::chrono::milliseconds deadline, void* computeStream,
                                    std::function<Ns(void* event)> timeOf);

}  // namespace pw
