// Which operations of a trace replicas do together.
#include "simulator/job/reduction_groups.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(ReductionGroups, AreOfOnePipelineAndNameWhatReplicasDoTogether) {
  const NamedSpan sum{JobRank(1), "grads-reduce-scatter", 10, 20}, step{JobRank(1), "optimizer", 20, 30};
  const ReductionGroups groups = reductionGroups({sum, step}, 16, 2, 2);
  EXPECT_EQ(groups, (ReductionGroups{4, 2, {{{Rank(1), 10, 20}, "grads-reduce-scatter"}}}));
  EXPECT_EQ(reductionGroups({}, 3, 0, 0), (ReductionGroups{3, 1, {}})) << "numbers that are not known count as one";
}

}  // namespace
}  // namespace pw
