#pragma once

#include <string>

#include "simulator/job/explain_job.h"

namespace pw {

/// The document of `explain --json` without its version. Keys have a fixed order. Linear.
[[nodiscard]] std::string explanationJson(const JobShape& shape, const Job& job, const JobExplanation& explanation);

}  // namespace pw
