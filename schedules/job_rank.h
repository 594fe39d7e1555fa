#pragma once

#include "schedules/ids.h"
#include "schedules/schedule.h"

namespace pw {

/// One process of a job, which runs one or more replicas of a pipeline: torchrun's RANK, and the rank of a `Communicator`. A `Rank` is a
/// row of the plan, the same in every replica.
using JobRank = Id<struct JobRankTag>;

/// Where replicas of a pipeline stand in their job, one after the other: rank r of replica d is process d · ranks + r.
struct Replicas {
  int ranks = 1;  ///< of one pipeline

  [[nodiscard]] constexpr JobRank jobRank(int replica, Rank rank) const { return JobRank(replica * ranks + rank.value); }
  [[nodiscard]] constexpr Rank rank(JobRank process) const { return Rank(process.value % ranks); }
  [[nodiscard]] constexpr int replica(JobRank process) const { return process.value / ranks; }
  /// The rank's number in a trace of the whole job, which has the ranks of all replicas in the order of their processes.
  [[nodiscard]] constexpr Rank inTrace(int replica, Rank rank) const { return Rank(jobRank(replica, rank).value); }
};

[[nodiscard]] inline Replicas replicasOf(const Schedule& pipeline) { return {static_cast<int>(pipeline.rows.size())}; }

}  // namespace pw
