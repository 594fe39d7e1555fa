#include "schedules/job_rank.h"

#include <concepts>
#include <type_traits>

#include <gtest/gtest.h>

namespace pw {
namespace {

// Ranks of a pipeline and of a job do not mix.
static_assert(!std::is_constructible_v<JobRank, Rank> && !std::is_constructible_v<Rank, JobRank>);
static_assert(!std::equality_comparable_with<Rank, JobRank>);

TEST(Replicas, StandOneAfterTheOther) {
  const Replicas replicas{3};
  EXPECT_EQ(replicas.jobRank(0, Rank(2)), JobRank(2));
  EXPECT_EQ(replicas.jobRank(2, Rank(1)), JobRank(7));
  EXPECT_EQ(replicas.inTrace(2, Rank(1)), Rank(7));
}

TEST(Replicas, AreFoundByTheirProcesses) {
  Schedule pipeline;
  pipeline.rows.resize(4);
  const Replicas replicas = replicasOf(pipeline);
  for (int replica = 0; replica < 3; ++replica) {
    for (int rank = 0; rank < 4; ++rank) {
      const JobRank process = replicas.jobRank(replica, Rank(rank));
      EXPECT_EQ(replicas.rank(process), Rank(rank));
      EXPECT_EQ(replicas.replica(process), replica);
    }
  }
}

}  // namespace
}  // namespace pw
