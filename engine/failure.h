#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "engine/launcher.h"

namespace pw {

/// What went wrong, for a user: the exception's first line without C++ source places. Running out of memory, which comes in many forms,
/// becomes "out of memory in <operator>, which wanted 625 MiB more; <cure>".
[[nodiscard]] std::string causeOf(const std::exception& exception);

/// A rank failed and said so: what is left is to end with this exit status, 2 for a UsageError, else 1.
struct RankFailed {
  int status = 1;
};

/// Ends a rank that failed: "Rank 1 failed in step 3, action 1F2: …" or "Rank 1: …". Under our launcher, which prints the cause, it reports
/// and ends this process at once. Under another it lets `complain` print it and throws RankFailed, so that connections are closed and peers
/// learn of it; as those may wait for each other, the process ends some seconds later in any case.
[[noreturn]] void failRank(const RankEnvironment& environment, const std::exception& exception,
                           int (*complain)(std::string_view sentence, int status));

/// Throws what ended a job, if it did not end well: UsageError where a rank refused its input, else Error.
void throwUnlessOk(const LaunchResult& result);

}  // namespace pw
