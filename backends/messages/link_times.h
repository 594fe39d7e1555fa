#pragma once

#include <chrono>
#include <utility>
#include <vector>

#include "backends/messages/communicator.h"
#include "backends/messages/device.h"

namespace pw {

/// One-way times [ns] between ranks 0 and 1 for messages of 1 KiB to 4 MiB between memory of `device`, for `fitLink`: half of the shortest
/// of 20 round trips each, because longer ones include waiting for a core. All ranks of the group call it; empty on ranks other than 0 and
/// 1. Throws Error when a wait takes longer than `deadline`, and as the group does.
[[nodiscard]] std::vector<std::pair<Bytes, Ns>> linkTimes(Communicator& group, const Device& device, std::chrono::milliseconds deadline);

}  // namespace pw
