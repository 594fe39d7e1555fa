#pragma once

// Internal to the import of traces: what a file of torch.profiler says of its job.

#include <string>

#include "backends/traces/events/events.h"

namespace pw {

/// Reads `distributedInfo`, an object of JSON: the process' rank, how many the job has, and the groups it is in (`pg_config`). What is no
/// such text says nothing.
void readDistributedInfo(const std::string& text, FileEvents& file);

}  // namespace pw
