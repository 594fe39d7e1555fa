#pragma once

#include <exception>
#include <string>
#include <string_view>

#include "engine/processes/launcher.h"
#include "schedules/error.h"

namespace pw {

/// What went wrong, for a user: the exception's first line without C++ source locations. Running out of memory, which is reported in many
/// forms, becomes "out of memory in <operator>, which requested 625 MiB more; <cure>".
[[nodiscard]] std::string causeOf(const std::exception& exception);

/// A rank failed and has reported it: only the exit status is left, 2 for a UsageError, otherwise 1.
struct RankFailed {
  int status = 1;
};

/// Ends a rank that failed: "Rank 1 failed in step 3, action 1F2: …" or "Rank 1: …". Under our launcher, which prints the cause, it reports
/// and ends this process at once. Under another launcher it lets `complain` print it and throws RankFailed, so that connections are closed
/// and peers notice; because peers may wait for each other, the process ends after some seconds in any case.
[[noreturn]] void failRank(const RankEnvironment& environment, const std::exception& exception,
                           int (*complain)(std::string_view sentence, int status));

/// The job was ended by Ctrl-C or SIGTERM; all ranks have ended.
class Interrupted : public Error {
 public:
  using Error::Error;
};

/// Throws the failure that ended a job, unless it completed: Interrupted, UsageError if a rank refused its input, otherwise Error.
void throwUnlessOk(const LaunchResult& result);

}  // namespace pw
