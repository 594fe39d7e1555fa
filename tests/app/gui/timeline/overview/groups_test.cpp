#include "app/gui/timeline/overview/groups.h"

#include <QImage>
#include <QPainter>

#include "app/gui/timeline/drawing/scene_painter.h"
#include "tests/app/gui/timeline/parts_fixture.h"

namespace pw::gui {
namespace {

QStringList named(const std::vector<QString>& groups) { return QStringList(groups.begin(), groups.end()); }

TEST(Groups, AreNodesWhereThereAreSeveral) {
  Topology topology;
  EXPECT_TRUE(groupsOf(4, 4, topology).empty()) << "all in one node";
  topology.ranksPerNode = 2;
  EXPECT_EQ(named(groupsOf(4, 4, topology)).join(QLatin1Char(';')), QStringLiteral("node 0;node 0;node 1;node 1"));
  EXPECT_TRUE(groupsOf(2, 2, topology).empty());
  topology.ranks = {{1, 0, 1}, {1, 0, 0}, {1, 0, 1}};
  EXPECT_EQ(named(groupsOf(3, 3, topology)).join(QLatin1Char(';')), QStringLiteral("node 1;node 0;node 1"));
  EXPECT_TRUE(groupsOf(4, 4, topology).empty()) << "a cluster of 3 ranks";
}

TEST(Groups, AreReplicasOfThePipeline) {
  Topology topology;
  EXPECT_EQ(named(groupsOf(4, 2, topology)).join(QLatin1Char(';')), QStringLiteral("replica 0;replica 0;replica 1;replica 1"));
  EXPECT_TRUE(groupsOf(5, 2, topology).empty()) << "of another plan";
  EXPECT_TRUE(groupsOf(4, 0, topology).empty());
  topology.ranksPerNode = 3;
  EXPECT_EQ(groupsOf(4, 2, topology)[3], QStringLiteral("replica 1, node 1"));
}

class GroupsOnTheScreen : public PartsFixture {
 protected:
  GroupsOnTheScreen() {
    predict(smallPrediction("1f1b", 6, 8));
    place.takeTimelines(true, false);
  }
  [[nodiscard]] std::vector<bool> collapsed() const {
    std::vector<bool> states;
    for (const RankView& rank : scene.ranks) states.push_back(rank.collapsed);
    return states;
  }
};

TEST_F(GroupsOnTheScreen, AreCollapsedAndExpandedTogether) {
  place.toggleGroup(Rank(1));
  EXPECT_EQ(collapsed(), std::vector(6, false)) << "there are none";
  const int before = labelWidth(scene);
  Topology topology;
  topology.ranksPerNode = 4;
  scene.groups = groupsOf(6, 6, topology);
  EXPECT_EQ(labelWidth(scene), before + groupWidth(scene)) << "room for the names of nodes";
  EXPECT_GT(groupWidth(scene), 0);
  place.changeRank(Rank(5), [](RankView& view) { view.collapsed = true; });
  place.toggleGroup(Rank(4));
  EXPECT_EQ(collapsed(), (std::vector{false, false, false, false, true, true}));
  place.toggleGroup(Rank(5));
  EXPECT_EQ(collapsed(), std::vector(6, false)) << "all of it was collapsed";
  place.toggleGroup(Rank(0));
  EXPECT_EQ(collapsed(), (std::vector{true, true, true, true, false, false}));
}

TEST_F(GroupsOnTheScreen, AreNamedUprightBesideTheirRanks) {
  Topology topology;
  topology.ranksPerNode = 3;
  scene.groups = groupsOf(6, 6, topology);
  place.resized();
  QImage image(1000, 600, QImage::Format_RGB32);
  QPainter painter(&image);
  ScenePainter().paint(painter, image.rect(), scene, place.layout(), place.view(), 0, theme(false));
  painter.end();
  const auto hasText = [&](int top, int bottom) {
    for (int y = top; y < bottom; ++y) {
      for (int x = 2; x < groupWidth(scene) - 2; ++x) {
        if (qGray(image.pixel(x, y)) < 110) return true;
      }
    }
    return false;
  };
  const int ruler = rulerHeight(scene), second = place.layout().rows[9].top + ruler;
  EXPECT_TRUE(hasText(ruler, second));
  EXPECT_TRUE(hasText(second, 600));
  // Between them a line is left free.
  EXPECT_EQ(image.pixel(groupWidth(scene) / 2, second - 3), theme(false).alternate.rgb());
}

}  // namespace
}  // namespace pw::gui
