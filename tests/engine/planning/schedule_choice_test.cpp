// Which stages per rank a schedule takes, and why it takes none.
#include "engine/planning/schedule_choice.h"

#include <gtest/gtest.h>

#include "schedules/error.h"

namespace pw::test {
namespace {

PlanRequest requestOf(int ranks, int chunks, int microbatches) {
  PlanRequest request;
  request.ranks = ranks;
  request.chunks = chunks;
  request.microbatches = microbatches;
  return request;
}

TEST(ChunksWith, KeepsThoseAtHandWhereTheFamilyTakesThem) {
  EXPECT_EQ(chunksWith("interleaved-1f1b", requestOf(2, 3, 4)), 3);
  EXPECT_EQ(chunksWith("1f1b", requestOf(2, 3, 4)), 1) << "one stage on a rank only";
  EXPECT_EQ(chunksWith("zbv", requestOf(2, 3, 4)), 2) << "two stages on a rank only";
}

TEST(ChunksWith, IsTheFamilysOwnNumberWhereThereWasOneOrNone) {
  for (const Generator& family : generators()) {
    EXPECT_EQ(chunksWith(family.name, requestOf(4, 0, 8)), family.chunks) << family.name;
    EXPECT_EQ(chunksWith(family.name, requestOf(4, 1, 8)), family.chunks) << family.name;
  }
}

TEST(ChunksWith, KeepsAnyForAnOrderThatIsMade) {
  EXPECT_EQ(chunksWith("auto", requestOf(2, 2, 4)), 2);
  EXPECT_EQ(chunksWith("auto", requestOf(2, 1, 4)), 1);
  EXPECT_EQ(chunksWith("auto", requestOf(2, 0, 4)), 1) << "its default";
}

TEST(ChunksWith, RefusesAnUnknownName) { EXPECT_THROW(static_cast<void>(chunksWith("no-such", requestOf(2, 1, 4))), UsageError); }

TEST(RefusalOf, IsNothingWhereTheFamilyTakesTheChunksAtHandOrItsOwn) {
  EXPECT_EQ(refusalOf(generatorOf("1f1b"), requestOf(2, 1, 4)), std::nullopt);
  EXPECT_EQ(refusalOf(generatorOf("1f1b"), requestOf(2, 3, 4)), std::nullopt) << "with one stage on a rank";
  EXPECT_EQ(refusalOf(generatorOf("interleaved-1f1b"), requestOf(2, 3, 4)), std::nullopt);
  EXPECT_EQ(refusalOf(generatorOf("zbv"), requestOf(2, 1, 4)), std::nullopt) << "with two stages on a rank";
}

TEST(RefusalOf, SaysWhatTheFamilyNeedsOfRanksAndMicrobatches) {
  const Generator& dualpipe = generatorOf("dualpipe");  // which needs an even number of ranks
  EXPECT_EQ(refusalOf(dualpipe, requestOf(4, 1, 8)), std::nullopt);
  for (const int chunks : {0, 1, 3}) {
    const auto refusal = refusalOf(dualpipe, requestOf(5, chunks, 10));
    ASSERT_TRUE(refusal.has_value()) << chunks;
    EXPECT_NE(refusal->find("an even number of ranks"), std::string::npos) << *refusal;
  }
}

}  // namespace
}  // namespace pw::test
