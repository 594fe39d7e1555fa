#include "simulator/text/counted.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(Counted, WordsHaveTheirPlural) {
  EXPECT_EQ(counted(1, "microbatch"), "1 microbatch");
  EXPECT_EQ(counted(4, "microbatch"), "4 microbatches");
  EXPECT_EQ(counted(0, "rank"), "0 ranks");
  EXPECT_EQ(counted(2, "bus"), "2 buses");
}

}  // namespace
}  // namespace pw
