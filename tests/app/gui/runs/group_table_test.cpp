#include "app/gui/runs/group_table.h"

#include <gtest/gtest.h>

namespace pw::gui {
namespace {

TEST(GroupLabel, SaysWhatTheLettersMean) {
  EXPECT_EQ(groupLabel("B"), "B  backward");
  EXPECT_EQ(groupLabel("WAIT_F"), "WAIT_F  waits for values");
  EXPECT_EQ(groupLabel("stage 3"), "stage 3");
  EXPECT_EQ(groupLabel("B (I + W)"), "B (I + W)  backward");
  EXPECT_EQ(groupLabel("B of stage 1"), "B of stage 1  backward");
}

TEST(GroupTable, HasADashWhereAKindIsAbsent) {
  GroupTable table;
  table.setGroups(
      {{"LOAD", 0, 3'000'000, 0, 3'000'000}, {"STORE", 2'000'000, 0, -1, 2'000'000}, {"F", 4'000'000, 5'000'000, 0.25, 1'000'000}},
      "plan A", "plan B");
  const auto text = [&](int row, GroupTable::Column column) { return table.data(table.index(row, column), Qt::DisplayRole).toString(); };
  EXPECT_EQ(text(0, GroupTable::Before), "–");
  EXPECT_EQ(text(0, GroupTable::After), "3.00 ms");
  EXPECT_EQ(text(1, GroupTable::After), "–");
  EXPECT_EQ(text(1, GroupTable::Difference), "▼ −2.00 ms") << "there is no ratio to what is absent";
  EXPECT_EQ(text(2, GroupTable::Difference), "▲ +1.00 ms  (+25.0 %)");
}

}  // namespace
}  // namespace pw::gui
