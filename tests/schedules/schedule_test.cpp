#include "schedules/schedule.h"

#include <gtest/gtest.h>

#include "schedules/check.h"
#include "schedules/error.h"
#include "schedules/generate.h"

namespace pw::test {
namespace {

TEST(RankOrder, MovesWhatEachRankDoes) {
  const Schedule usual = generate("zbv", {3, 6, 4});
  const Schedule moved = withRankOrder(usual, {Rank(2), Rank(0), Rank(1)});
  EXPECT_EQ(moved.rows[2], usual.rows[0]);
  EXPECT_EQ(moved.rows[0], usual.rows[1]);
  EXPECT_EQ(moved.rows[1], usual.rows[2]);
  EXPECT_EQ(moved.placement.rankOfStage, (std::vector<Rank>{Rank(2), Rank(0), Rank(1), Rank(1), Rank(0), Rank(2)}));
  EXPECT_TRUE(check(moved).empty());
  EXPECT_EQ(withRankOrder(moved, {Rank(1), Rank(2), Rank(0)}), usual) << "and back";
}

TEST(RankOrder, MovesBothReplicasOfBidirectionalStages) {
  const Schedule usual = generate("dualpipe", {4, 4, 8});
  const Schedule moved = withRankOrder(usual, {Rank(3), Rank(1), Rank(0), Rank(2)});
  EXPECT_TRUE(check(moved).empty());
  EXPECT_EQ(moved.placement.mirrorOfStage.front(), Rank(2));
}

TEST(RankOrder, RefusesWhatIsNotAnOrder) {
  const Schedule usual = generate("1f1b", {2, 2, 2});
  for (const std::vector<Rank>& order : {std::vector<Rank>{}, {Rank(0)}, {Rank(0), Rank(0)}, {Rank(0), Rank(2)}, {Rank(-1), Rank(0)}}) {
    try {
      static_cast<void>(withRankOrder(usual, order));
      ADD_FAILURE();
    } catch (const UsageError& error) {
      EXPECT_STREQ(error.what(), "An order of 2 ranks names each of the ranks 0 to 1 once; this one does not.");
    }
    EXPECT_THROW(static_cast<void>(withRankOrder(usual.placement, 2, order)), UsageError);
  }
}

}  // namespace
}  // namespace pw::test
