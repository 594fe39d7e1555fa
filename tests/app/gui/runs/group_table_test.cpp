#include "app/gui/runs/group_table.h"

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

TEST(GroupLabel, SaysWhatTheLettersMean) {
  EXPECT_EQ(groupLabel("B"), "B  backward");
  EXPECT_EQ(groupLabel("WAIT_F"), "WAIT_F  waits for values");
  EXPECT_EQ(groupLabel("stage 3"), "stage 3");
}

}  // namespace
}  // namespace pw::gui
