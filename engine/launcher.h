#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedules/ids.h"

namespace pw {

/// How a group of rank processes ended.
struct LaunchResult {
  bool ok = true;
  Rank failedRank;         ///< the first to fail
  std::string failure;     ///< first cause, one sentence naming the rank: what it said, or the signal that ended it
  bool interrupted = false;///< ended by Ctrl-C / SIGTERM of ours
  bool unusable = false;   ///< the rank refused its input (UsageError)
};

/// What the environment of a rank says (torchrun, Slurm or our launcher): set when `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT` are.
struct RankEnvironment {
  Rank rank;
  int worldSize = 1;
  std::string masterAddress;
  int masterPort = 0;
  int listenFd = -1;       ///< inherited listening socket of the store on rank 0 (ours only; PIPEWRIGHT_LISTEN_FD)
  int statusFd = -1;       ///< pipe to our launcher (PIPEWRIGHT_STATUS_FD); −1 when another launcher started us
};

/// Reads the environment; nothing when `RANK` is not set. Throws UsageError when it is set but others are missing or no numbers.
[[nodiscard]] std::optional<RankEnvironment> rankEnvironment();

/// Starts `ranks` copies of `argv` (argv[0] = path of the executable; PATH is not searched), each with RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR=127.0.0.1, MASTER_PORT, OMP_NUM_THREADS (=threads) and PIPEWRIGHT_STATUS_FD set, rank 0 also with the listening socket; waits for all.
/// The ranks' stdout is passed through `onLine(rank, line)` when given, else inherited; stderr is inherited.
/// A rank reports through `reportFailure` below. When one fails (exit status, signal), the others get SIGTERM and 500 ms
/// later SIGKILL. When we are interrupted, likewise. Children die with us (parent-death signal). Never blocks longer than
/// `deadline` (0: none) in total. No rank is left when this returns or throws. One launch at a time in a process.
/// First cause: news of 100 ms are gathered; a rank ended by a signal comes before ranks that reported (they may have noticed
/// it), then the earliest report by the rank's own clock.
[[nodiscard]] LaunchResult launch(int ranks, const std::vector<std::string>& argv, int threads,
                                  const std::function<void(Rank, const std::string&)>& onLine,
                                  std::chrono::milliseconds deadline);

/// In a rank: tells the launcher why it fails (one line) and whether that is unusable input; does nothing without statusFd. The launcher names
/// the rank in front of sentences that do not begin with it. Async-signal-unsafe, never throws.
void reportFailure(const RankEnvironment& environment, const std::string& sentence, bool unusable = false) noexcept;

}  // namespace pw
