#include "backends/cuda/partition.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(PartsOfAGpu, AreEqualAndInWholeGroups) {
  // An H100 has 132 multiprocessors and gives 8 or more, in groups of 8.
  EXPECT_EQ(multiprocessorsOfAPart(132, 1, 8, 8), 128);
  EXPECT_EQ(multiprocessorsOfAPart(132, 2, 8, 8), 64) << "66, less the two that are no group";
  EXPECT_EQ(multiprocessorsOfAPart(132, 4, 8, 8), 32);
  EXPECT_EQ(multiprocessorsOfAPart(132, 16, 8, 8), 8);
  // An A100 has 108 and gives 4 or more, in groups of 2.
  EXPECT_EQ(multiprocessorsOfAPart(108, 2, 4, 2), 54);
  EXPECT_EQ(multiprocessorsOfAPart(108, 7, 4, 2), 14) << "15, less one";
  for (int all = 1; all <= 160; ++all) {
    for (int parts = 1; parts <= 20; ++parts) {
      const int each = multiprocessorsOfAPart(all, parts, 8, 8);
      EXPECT_LE(each * parts, all);
      EXPECT_EQ(each % 8, 0);
      EXPECT_TRUE(each > 0 ? (each + 8) * parts > all : all < 8 * parts)
          << all << " in " << parts << ": no part could be larger, or there is none";
    }
  }
}

TEST(PartsOfAGpu, AreNotMadeOfLessThanTheDriverGives) {
  EXPECT_EQ(multiprocessorsOfAPart(132, 17, 8, 8), 0) << "7 for each";
  EXPECT_EQ(multiprocessorsOfAPart(108, 28, 4, 2), 0) << "3 for each, 2 in whole groups";
  EXPECT_EQ(multiprocessorsOfAPart(108, 28, 0, 0), 3) << "a driver that names no limit";
  EXPECT_EQ(multiprocessorsOfAPart(108, 109, 0, 0), 0);
  EXPECT_EQ(multiprocessorsOfAPart(108, 0, 4, 2), 0);
}

}  // namespace
}  // namespace pw
