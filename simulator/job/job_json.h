#pragma once

#include <string>
#include <string_view>

#include "simulator/job/job.h"

namespace pw {

/// The job as JSON (formats.md): `"format": "pipewright job"` and `version` 1 come first; `typical` is for readers of the file and not read
/// back. Lists of numbers stand on one line. Linear.
[[nodiscard]] std::string toJson(const Job& job);

/// Reads that JSON; `source` names it in errors. Throws UsageError naming the place of what is missing, too large, contradictory, or of an
/// unknown version, and where the schedule does not run. Linear.
[[nodiscard]] Job parseJob(std::string_view text, const std::string& source);

}  // namespace pw
