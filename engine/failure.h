#pragma once

#include <exception>
#include <string>

#include "engine/launcher.h"

namespace pw {

/// What went wrong, for a user: the exception's first line without C++ source places. Running out of memory, which comes in many forms, becomes
/// "out of memory in <operator>, which wanted 625 MiB more; <cure>".
[[nodiscard]] std::string causeOf(const std::exception& exception);

/// Ends a rank that failed. Under our launcher, which prints the cause, it reports and ends this process at once (exit status 2 for a UsageError,
/// else 1); under another it throws Error or UsageError with the same sentence, "Rank 1 failed in step 3, action 1F2: …" or "Rank 1: …".
[[noreturn]] void failRank(const RankEnvironment& environment, const std::exception& exception);

/// Throws what ended a job, if it did not end well: UsageError where a rank refused its input, else Error.
void throwUnlessOk(const LaunchResult& result);

}  // namespace pw
