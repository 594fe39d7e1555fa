#include "app/gui/model/parts/row_geometry.h"

#include "simulator/partition/split.h"
#include "tests/app/gui/model/samples.h"

namespace pw::gui {
namespace {

/// Ten nodes: model [0, 10) of a [0, 4) with a1 [0, 1) and a2 [1, 4), and b [4, 10).
CallTree smallTree() {
  CallTree tree;
  const auto add = [&](const char* label, int parent, int first, int end) {
    CallRow row;
    row.path = row.label = label;
    row.parent = parent;
    row.firstNode = NodeId(first);
    row.endNode = NodeId(end);
    tree.rows.push_back(row);
    tree.children.emplace_back();
    if (parent >= 0) tree.children[static_cast<std::size_t>(parent)].push_back(tree.size() - 1);
  };
  add("model", -1, 0, 10);
  add("a", 0, 0, 4);
  add("a1", 1, 0, 1);
  add("a2", 1, 1, 4);
  add("b", 0, 4, 10);
  const int ends[] = {5, 4, 3, 4, 5};
  for (std::size_t r = 0; r < 5; ++r) tree.rows[r].end = ends[r];
  tree.rowOfNode = {2, 3, 3, 3, 4, 4, 4, 4, 4, 4};
  return tree;
}

TEST(RowGeometry, APlaceIsTheTopOfTheOutermostRowThatBeginsThere) {
  const CallTree tree = smallTree();
  const VisibleRows all(tree, {true, true, false, false, false});
  EXPECT_EQ(all.rows(), (std::vector<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(all.boundary(NodeId(0)), 0);  // above the model, not above a or a1
  EXPECT_EQ(all.boundary(NodeId(1)), 3);
  EXPECT_EQ(all.boundary(NodeId(4)), 4);
  EXPECT_EQ(all.boundary(NodeId(10)), 5);  // the end
  EXPECT_TRUE(all.isBetweenRows(NodeId(1)));
}

TEST(RowGeometry, APlaceInAClosedRowLiesInItInProportionToItsNodes) {
  const CallTree tree = smallTree();
  const VisibleRows closed(tree, {true, false, false, false, false});
  EXPECT_EQ(closed.rows(), (std::vector<int>{0, 1, 4}));
  EXPECT_DOUBLE_EQ(closed.boundary(NodeId(1)), 1.25);
  EXPECT_DOUBLE_EQ(closed.boundary(NodeId(2)), 1.5);
  EXPECT_DOUBLE_EQ(closed.boundary(NodeId(9)), 2.8);  // 5/6, kept off the edge
  EXPECT_FALSE(closed.isBetweenRows(NodeId(2)));
  EXPECT_EQ(closed.showing(NodeId(2)), 1);
  EXPECT_EQ(closed.showing(NodeId(9)), 4);
}

TEST(RowGeometry, TheNearestPlaceIsTheNodeBelowTheNearestRowBorder) {
  const CallTree tree = smallTree();
  const VisibleRows all(tree, {true, true, false, false, false});
  EXPECT_EQ(all.nearest(-3), NodeId(0));
  EXPECT_EQ(all.nearest(2.4), NodeId(0));  // above a1, which begins with the model
  EXPECT_EQ(all.nearest(2.5), NodeId(1));
  EXPECT_EQ(all.nearest(3.49), NodeId(1));
  EXPECT_EQ(all.nearest(4.2), NodeId(4));
  EXPECT_EQ(all.nearest(77), NodeId(10));
}

TEST(RowGeometry, TheMiddleOfAClosedRowWaitsToBeOpened) {
  const CallTree tree = smallTree();
  const VisibleRows closed(tree, {true, false, false, false, false});
  EXPECT_EQ(closed.closedUnder(1.5), 1);
  EXPECT_EQ(closed.closedUnder(1.1), -1);  // at a border: a place to drop
  EXPECT_EQ(closed.closedUnder(2.5), -1);  // b has nothing inside
  EXPECT_EQ(closed.closedUnder(0.5), -1);  // open already
  EXPECT_EQ(closed.closedUnder(9), -1);
}

TEST(RowGeometry, EveryPlaceOfAnOpenSampleIsFoundAgainWhereItIsDrawn) {
  for (const char* name : kSamples) {
    const SampleModel sample(name);
    const VisibleRows all(sample.tree, std::vector<bool>(sample.tree.rows.size(), true));
    ASSERT_EQ(all.count(), sample.tree.size());
    for (const SplitPoint& point : sample.points) {
      EXPECT_TRUE(all.isBetweenRows(point.begin)) << name << " " << point.name;
      EXPECT_EQ(all.nearest(all.boundary(point.begin)), point.begin) << name << " " << point.name;
    }
  }
}

TEST(RowGeometry, AnEmptyTreeHasNoPlaces) {
  const VisibleRows none;
  EXPECT_EQ(none.count(), 0);
  EXPECT_EQ(none.boundary(NodeId(3)), 0);
  EXPECT_EQ(none.nearest(2), NodeId(0));
  EXPECT_EQ(none.showing(NodeId(0)), -1);
}

TEST(RowGeometry, ArcsThatOverlapTakeDifferentLanesAndShortOnesTheInnermost) {
  const std::vector<std::pair<double, double>> spans{{0, 10}, {1, 3}, {3, 6}, {2, 5}};
  // By length: [1, 3) lane 0; [3, 6) and [2, 5) are as long: the first one fits after [1, 3), the other overlaps both; [0, 10) overlaps
  // all.
  EXPECT_EQ(arcLanes(spans, 4), (std::vector<int>{2, 0, 0, 1}));
  EXPECT_EQ(arcLanes(spans, 2), (std::vector<int>{1, 0, 0, 1}));  // what does not fit shares the last
  EXPECT_TRUE(arcLanes({}, 3).empty());
}

TEST(RowGeometry, ANodeIsInTheStageThatBeganLast) {
  const std::vector<NodeId> begins{NodeId(3), NodeId(7)};
  EXPECT_EQ(stageOf(begins, NodeId(2)), Stage(0));
  EXPECT_EQ(stageOf(begins, NodeId(3)), Stage(1));
  EXPECT_EQ(stageOf(begins, NodeId(7)), Stage(2));
  EXPECT_EQ(stageOf({}, NodeId(7)), Stage(0));
}

}  // namespace
}  // namespace pw::gui
