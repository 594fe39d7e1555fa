#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include "backends/messages/communicator.h"

namespace pw {

/// A communicator among `ranks` threads of this process, by copying through mailboxes. For tests and single-rank jobs.
/// Element i is rank i's; each may be used by one thread. `deadline` bounds every wait.
[[nodiscard]] std::vector<std::unique_ptr<Communicator>> inMemoryCommunicators(int ranks, std::chrono::milliseconds deadline);

}  // namespace pw
