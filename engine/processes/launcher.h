#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "engine/processes/rank_environment.h"
#include "schedules/job_rank.h"

namespace pw {

/// How a group of rank processes ended.
struct LaunchResult {
  bool ok = true;
  JobRank failedRank;        ///< the first to fail
  std::string failure;       ///< the first cause, one sentence naming the rank: what it reported, or the signal that ended it
  bool interrupted = false;  ///< ended because we received Ctrl-C or SIGTERM
  bool unusable = false;     ///< the rank refused its input (UsageError)
};

/// Starts `ranks` copies of `argv` (argv[0] = path of the executable; PATH is not searched), each with RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR=127.0.0.1, MASTER_PORT, OMP_NUM_THREADS (=threads), PIPEWRIGHT_JOB_TOKEN (random) and PIPEWRIGHT_STATUS_FD
/// set, rank 0 also with the listening socket; waits for all. The ranks' stdout is passed through `onLine(rank, line)` if given, otherwise
/// inherited; stderr is inherited. A rank reports failures through `reportFailure` (rank_environment.h). When one fails (exit status,
/// signal) or is late, the others get `kJobFailed` (process.h), and SIGTERM when we are interrupted; who still runs 500 ms later gets
/// SIGKILL. Children die with us (parent-death signal). Never blocks longer than `deadline` (0: none) in total. No rank is running when
/// this returns or throws. One launch at a time in a process. A rank that does not report progress towards its first step (`reportStartUp`)
/// within `startUp` (0: any time) ends the job and is named: at once if it is stopped (SIGSTOP), after twice that time if it is running,
/// because peers that wait for it may know the reason better. The first cause: reports are collected for 100 ms; a rank ended by a signal
/// comes before ranks that reported (they may have noticed it), then the earliest report by the rank's own clock.
[[nodiscard]] LaunchResult launch(int ranks, const std::vector<std::string>& argv, int threads,
                                  const std::function<void(JobRank, const std::string&)>& onLine, std::chrono::milliseconds deadline,
                                  std::chrono::milliseconds startUp = std::chrono::milliseconds(0));

}  // namespace pw
