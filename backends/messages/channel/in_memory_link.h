#pragma once

#include <vector>

#include "backends/messages/channel/link.h"

namespace pw {

/// Links among `ranks` threads of this process: a block waits in the memory of its sender until its receiver copies it. Element i is rank
/// i's; each connects once, at any time. A rank that leaves is lost to the others. For tests and single-rank jobs.
[[nodiscard]] std::vector<LinkMaker> inMemoryLinks(int ranks);

}  // namespace pw
