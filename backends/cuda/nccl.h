#pragma once

#include <chrono>
#include <functional>

#include "backends/messages/device_messages.h"

namespace pw {

/// Messages and collectives between GPUs by NCCL: for each direction between two ranks a communicator of two, for each group one of its
/// own, each with a stream of high priority, made when first used. Nothing but `order`, `abort` and the end blocks, so that two ranks can
/// connect to each other both ways at once; all moves on with every call but `times` and `stateOf`, and by a thread of its own. `host`
/// carries what NCCL needs to connect, by tag 0x7FFF4000, and must outlive the links. `computeStream` is a CUDA stream of the calling
/// thread's device; `timeOf` turns a CUDA event into a time on the host's monotonic clock [ns].
///
/// A receive writes to its buffer at once, whatever compute does with that memory: see Device::allocate. Operations take their turn within
/// a link or a group, as NCCL matches them. Collectives: of float16, bfloat16, float32, float64, uint8, int8, int32 and int64. Errors name
/// the ranks and the oldest operation of the link that is not done.
///
/// Cost: a first use of a link some hundred milliseconds, beside the compute; an operation some ten microseconds, as NCCL starts a thread
/// for each that does not block. The end waits some seconds at most for the peers to end too.
[[nodiscard]] DeviceLinks ncclLinks(Communicator& host, std::chrono::milliseconds deadline, void* computeStream,
                                    std::function<Ns(void* event)> timeOf);

}  // namespace pw
