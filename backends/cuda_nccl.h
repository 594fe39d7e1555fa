#pragma once

#include <chrono>
#include <functional>

#include "backends/device_messages.h"

namespace pw {

/// Messages between GPUs by NCCL: for each direction between two ranks a communicator of two and a stream of its own, made when first used. Nothing
/// but `order`, `abort` and the end blocks, so that two ranks can connect to each other both ways at once; links move on with every call but `times`,
/// and by a thread of their own. `host` carries what NCCL needs to connect, by tag 0x7FFF4000, and must outlive the links. `computeStream` is a CUDA
/// stream of the calling thread's device; `timeOf` turns a CUDA event into a time on the host's monotonic clock [ns].
///
/// A receive writes to its buffer at once, whatever compute does with that memory: see Device::allocate. Operations take their turn within a link, as
/// NCCL matches them. Errors name the ranks and the oldest operation of the link that is not done.
///
/// Cost: a first use of a link some hundred milliseconds, beside the compute; an operation some ten microseconds. The end waits some seconds at most
/// for the peers to end too.
[[nodiscard]] DeviceLinks ncclLinks(Communicator& host, std::chrono::milliseconds deadline, void* computeStream, std::function<Ns(void* event)> timeOf);

}  // namespace pw
