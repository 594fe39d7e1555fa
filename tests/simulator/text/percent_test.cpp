#include "simulator/text/percent.h"

#include <gtest/gtest.h>

namespace pw {
namespace {

TEST(Percent, HasOneDigitAndASignWhereItIsWanted) {
  EXPECT_EQ(percent(0.1234), "12.3 %");
  EXPECT_EQ(percent(0), "0.0 %");
  EXPECT_EQ(percent(-0.5), "-50.0 %");
  EXPECT_EQ(signedPercent(0.0126), "+1.3 %");
  EXPECT_EQ(signedPercent(-0.0126), "-1.3 %");
}

}  // namespace
}  // namespace pw
