#pragma once

#include <map>
#include <string>
#include <vector>

#include "simulator/job/replay_job.h"

namespace pw {

/// The kind of waits of hosts, beside the letters of actions and messages and the names of operations.
inline constexpr const char* kWaitKind = "wait";

/// Time on the longest chain of a replayed step, from its start to its last end; the sum is the step.
struct ReplayPath {
  std::map<std::string, Ns> byKind;  ///< letters of actions and messages, names of operations, and `kWaitKind`: of hosts, before either
  std::vector<Ns> byRank;            ///< pipeline rank that computes, waits, or receives
};

/// The chain that ends last (ties: the first worker's last), walked back through what each part waited for; where a rank and a message were
/// ready at once, through the rank. `replay` is of these times. Cost: linear in its length times the workers.
[[nodiscard]] ReplayPath pathOf(const JobShape& shape, const Job& job, const JobTimes& times, const JobReplay& replay);

}  // namespace pw
