#include <QScrollBar>
#include <cmath>

#include "app/gui/timeline/overview/density.h"
#include "app/gui/timeline/overview/map.h"
#include "app/gui/timeline/overview/strip.h"
#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

// ---- Where things are ----

/// 1000 ns in 100 pixels from 50 on, 400 lines in 40 from 10 on; shown are 200 to 400 ns and lines 100 to 200.
OverviewMap smallMap() {
  OverviewMap map;
  map.area = QRect(50, 10, 100, 40);
  map.end = 1000;
  map.lines = 400;
  map.visible = 100;
  map.scroll = 100;
  map.from = 200;
  map.to = 400;
  return map;
}

TEST(OverviewMap, ShowsTheVisiblePartAsAWindow) {
  OverviewMap map = smallMap();
  EXPECT_EQ(map.window(), QRect(70, 20, 20, 10));
  EXPECT_FALSE(map.isAllVisible());
  map.pinned = 50;
  EXPECT_EQ(map.window(), QRect(70, 25, 20, 5)) << "what is pinned does not scroll";
  map.from = -100;
  map.to = 5000;
  map.visible = 500;
  map.scroll = 0;
  EXPECT_EQ(map.window(), map.area);
  EXPECT_TRUE(map.isAllVisible());
  map.from = 999;
  map.to = 1000;
  EXPECT_EQ(map.window(), QRect(142, 10, 8, 40)) << "never too small to be seen, and inside";
}

TEST(OverviewMap, KnowsItsParts) {
  const OverviewMap map = smallMap();
  using Part = OverviewMap::Part;
  EXPECT_EQ(map.partAt({80, 25}), Part::Window);
  EXPECT_EQ(map.partAt({72, 25}), Part::LeftEdge);
  EXPECT_EQ(map.partAt({67, 25}), Part::LeftEdge);
  EXPECT_EQ(map.partAt({91, 25}), Part::RightEdge);
  EXPECT_EQ(map.partAt({80, 35}), Part::Outside);
  EXPECT_EQ(map.partAt({100, 25}), Part::Outside);
  EXPECT_DOUBLE_EQ(map.timeAt(75), 250);
  EXPECT_EQ(map.scrollAt(20), 100);
  EXPECT_EQ(map.scrollAt(0), 0);
  EXPECT_EQ(map.scrollAt(500), 300) << "400 lines, of which 100 are seen";
}

TEST(OverviewMap, KeepsRangesWithinTheStep) {
  using Range = std::pair<double, double>;
  OverviewMap map = smallMap();
  EXPECT_EQ(map.movedTo(500), Range(500, 700));
  EXPECT_EQ(map.movedTo(-20), Range(0, 200));
  EXPECT_EQ(map.movedTo(950), Range(800, 1000));
  EXPECT_EQ(map.withEdgeAt(OverviewMap::Part::LeftEdge, 60), Range(100, 400));
  EXPECT_EQ(map.withEdgeAt(OverviewMap::Part::LeftEdge, 149), Range(390, 400)) << "a pixel of 10 ns is left";
  EXPECT_EQ(map.withEdgeAt(OverviewMap::Part::RightEdge, 500), Range(200, 1000));
  EXPECT_EQ(map.zoomedAt(80, 0.5), Range(250, 350)) << "around 300 ns";
  EXPECT_EQ(map.zoomedAt(80, 100), Range(0, 1000));
  map.from = -50;
  map.to = 1150;
  EXPECT_EQ(map.movedTo(500), Range(-100, 1100)) << "more than all stays in the middle";
}

// ---- The picture ----

TEST(Density, FadesByIdleTimeAndMixesKinds) {
  // GPipe on one rank: two forwards of 1 ms, then two backwards of 2 ms.
  const auto prediction = smallPrediction("gpipe", 1, 2);
  const SpanTrack& track = prediction->timeline.ranks[0].compute;
  const Scene scene;
  const Look look(scene, theme(false));
  const QRgb forward = look.of({SpanKind::Forward, Stage(0), Microbatch(0), {}}).base;
  const QRgb backward = look.of({SpanKind::Backward, Stage(0), Microbatch(0), {}}).base;
  ASSERT_EQ(prediction->timeline.end, 6 * kMs);
  EXPECT_EQ(densityOf(track, 6 * kMs, 3, look, ColourBy::Kind), (std::vector{forward, backward, backward}));
  const auto two = densityOf(track, 6 * kMs, 2, look, ColourBy::Kind);
  EXPECT_NEAR(qRed(two[0]), (2 * qRed(forward) + qRed(backward)) / 3.0, 1) << "2 ms of forward and 1 ms of backward";
  EXPECT_NEAR(qGreen(two[0]), (2 * qGreen(forward) + qGreen(backward)) / 3.0, 1);
  const auto idle = densityOf(track, 12 * kMs, 4, look, ColourBy::Kind);
  EXPECT_EQ(idle[1], backward);
  EXPECT_EQ(idle[2], look.bubble().base);
  EXPECT_EQ(densityOf(track, 12 * kMs, 1, look, ColourBy::Stage)[0], mixed(look.bubble().base, look.of(track.tags.back()).base, 0.5));
  EXPECT_EQ(densityOf(SpanTrack{}, 10, 2, look, ColourBy::Kind), std::vector(2, look.bubble().base));
}

TEST(Density, HasAPictureOfMoreRanksThanLines) {
  const auto prediction = smallPrediction("1f1b", 128, 4);
  Scene scene;
  scene.predicted = std::shared_ptr<const Timeline>(prediction, &prediction->timeline);
  for (std::size_t r = 0; r < 128; ++r) scene.ranks.push_back({Rank(r)});
  DensityPicture picture;
  const QImage image = picture.of(scene, layOutRows(scene), QSize(300, 40), theme(false));
  ASSERT_EQ(image.size(), QSize(300, 40));
  // The first rank begins with a forward, the last one is idle then.
  const Look look(scene, theme(false));
  EXPECT_NE(image.pixel(0, 0), look.bubble().base);
  EXPECT_EQ(image.pixel(0, 39), look.bubble().base);
  const qint64 key = image.cacheKey();
  EXPECT_EQ(picture.of(scene, layOutRows(scene), QSize(300, 40), theme(false)).cacheKey(), key) << "kept";
  scene.ranks.front().collapsed = true;
  EXPECT_NE(picture.of(scene, layOutRows(scene), QSize(300, 40), theme(false)).cacheKey(), key);
}

TEST(Density, ByStageHasNoMixedColours) {
  const auto prediction = smallPrediction("gpipe", 64, 2);
  Scene scene;
  scene.predicted = std::shared_ptr<const Timeline>(prediction, &prediction->timeline);
  scene.colourBy = ColourBy::Stage;
  for (std::size_t r = 0; r < 64; ++r) scene.ranks.push_back({Rank(r)});
  // A column of a millisecond, as long as a forward: the first rank with one line of its own is busy as a whole.
  DensityPicture picture;
  const int width = static_cast<int>(prediction->timeline.end / kMs);
  const QImage image = picture.of(scene, layOutRows(scene), QSize(width, 20), theme(false));
  const Look look(scene, theme(false));
  EXPECT_EQ(image.pixel(0, 0), look.of({SpanKind::Forward, Stage(0), Microbatch(0), {}}).base) << "not with stages 1 and 2";
}

// ---- In the timeline ----

class Overview : public TimelineFixture {
 protected:
  void SetUp() override {
    TimelineFixture::SetUp();
    open("1f1b", 32, 16);
    QApplication::processEvents();
  }
  [[nodiscard]] OverviewStrip* strip() const { return widget.findChild<OverviewStrip*>(); }
  /// Where a share of the step and of the ranks is in the strip.
  [[nodiscard]] QPoint in(double time, double ranks) const {
    const int left = labelWidth(widget.scene());
    return {left + static_cast<int>(std::lround(time * (strip()->width() - left))),
            static_cast<int>(std::lround(ranks * strip()->height()))};
  }
  [[nodiscard]] double length() const { return widget.viewport().end() - widget.viewport().start; }
};

TEST_F(Overview, GoesWhereItIsClickedAndFollowsADrag) {
  ASSERT_TRUE(strip()->isVisible());
  widget.select(at(0, SpanKind::Forward, 0, 3));
  widget.fitSelection();
  const double before = length(), end = static_cast<double>(timeline().end);
  QTest::mouseClick(strip(), Qt::LeftButton, {}, in(0.5, 0.5));
  EXPECT_NEAR((widget.viewport().start + widget.viewport().end()) / 2, end / 2, 0.01 * end);
  EXPECT_NEAR(length(), before, 1);
  auto* bar = widget.findChild<QScrollBar*>(QString(), Qt::FindDirectChildrenOnly);
  ASSERT_NE(bar, nullptr);
  EXPECT_NEAR(bar->value() + bar->pageStep() / 2.0, layOutRows(widget.scene()).height / 2.0, 0.05 * layOutRows(widget.scene()).height);
  QTest::mousePress(strip(), Qt::LeftButton, {}, in(0.5, 0.5));
  QTest::mouseMove(strip(), in(0.6, 0.9));
  QTest::mouseMove(strip(), in(0.7, 1));
  QTest::mouseRelease(strip(), Qt::LeftButton, {}, in(0.7, 1));
  EXPECT_NEAR((widget.viewport().start + widget.viewport().end()) / 2, 0.7 * end, 0.01 * end);
  EXPECT_EQ(bar->value(), bar->maximum());
  QTest::mouseDClick(strip(), Qt::LeftButton, {}, in(0.7, 0.9));
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width));
}

TEST_F(Overview, ItsEdgesChangeTheRange) {
  const double end = static_cast<double>(timeline().end);
  key(Qt::Key_H);
  QTest::mousePress(strip(), Qt::LeftButton, {}, in(0, 0.5));
  QTest::mouseMove(strip(), in(0.1, 0.5));
  QTest::mouseMove(strip(), in(0.25, 0.5));
  QTest::mouseRelease(strip(), Qt::LeftButton, {}, in(0.25, 0.5));
  EXPECT_NEAR(widget.viewport().start, 0.25 * end, 0.01 * end);
  EXPECT_NEAR(widget.viewport().end(), end, 0.02 * end) << "the other edge stays";
}

TEST_F(Overview, IsReachedByKeysAndSaysWhatItShows) {
  widget.select(at(0, SpanKind::Forward, 0, 3));
  widget.fitSelection();
  canvas()->setFocus();
  QTest::keyClick(canvas(), Qt::Key_Backtab);
  EXPECT_TRUE(strip()->hasFocus()) << "before the timeline";
  EXPECT_TRUE(strip()->focusPolicy() & Qt::TabFocus);
  EXPECT_FALSE(strip()->accessibleName().isEmpty());
  const double start = widget.viewport().start;
  QTest::keyClick(strip(), Qt::Key_Right);
  EXPECT_NEAR(widget.viewport().start, start + 0.1 * length(), 1);
  EXPECT_TRUE(strip()->accessibleDescription().contains(QStringLiteral("of 32 ranks"))) << strip()->accessibleDescription().toStdString();
  QTest::keyClick(strip(), Qt::Key_Home);
  EXPECT_EQ(widget.viewport(), fitted(0, timeline().end, widget.viewport().width)) << "the timeline's other keys do what they do there";
}

TEST_F(Overview, IsHiddenAndStaysSoInAProject) {
  const QByteArray with = widget.saveView();
  key(Qt::Key_V, Qt::ShiftModifier);
  EXPECT_FALSE(strip()->isVisible());
  const QByteArray without = widget.saveView();
  widget.restoreView(with);
  EXPECT_TRUE(strip()->isVisible());
  widget.restoreView(without);
  EXPECT_FALSE(strip()->isVisible());
}

}  // namespace
}  // namespace pw::gui
