#include "app/gui/common/format.h"

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

TEST(Format, ASmallShareIsNotShownAsNone) {
  EXPECT_EQ(percentText(0), "0.0 %");
  EXPECT_EQ(percentText(0.0001), "< 0.1 %");
  EXPECT_EQ(percentText(0.0006), "0.1 %");
  EXPECT_EQ(percentText(0.001, 0), "< 1 %");
  EXPECT_EQ(percentText(0.25, 0), "25 %");
  EXPECT_EQ(signedPercentText(-0.0001), "−0.0 %");
  EXPECT_EQ(signedPercentText(0.031), "+3.1 %");
}

}  // namespace
}  // namespace pw::gui
