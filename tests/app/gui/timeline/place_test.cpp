#include "app/gui/timeline/place.h"

#include <QSignalSpy>
#include <algorithm>

#include "tests/app/gui/timeline/parts_fixture.h"

namespace pw::gui {
namespace {

/// 1F1B of 4 ranks and 8 microbatches, all of it shown.
class PlaceTest : public PartsFixture {
 protected:
  PlaceTest() {
    predict(smallPrediction());
    place.takeTimelines(true, false);
  }
  [[nodiscard]] int width() const { return 1000 - labelWidth(scene); }
};

TEST_F(PlaceTest, ANewTimelineIsShownCompletely) {
  EXPECT_EQ(scene.ranks.size(), 4u);
  EXPECT_EQ(place.view(), fitted(0, scene.predicted->end, width()));
  EXPECT_FALSE(place.saved().shown) << "and stays so";
  place.zoomAt(0, 0.5, Place::Move::Jump);
  EXPECT_DOUBLE_EQ(place.view().nsPerPixel, fitted(0, scene.predicted->end, width()).nsPerPixel / 2);
  EXPECT_TRUE(place.saved().shown);
  const Viewport closer = place.view();
  predict(smallPrediction("1f1b", 4, 9));
  place.takeTimelines(true, true);
  EXPECT_EQ(place.view(), closer) << "but not while it is dragged";
  place.takeTimelines(false, false);
  EXPECT_EQ(place.view(), closer) << "nor where only times are others";
  place.takeTimelines(true, false);
  EXPECT_EQ(place.view(), fitted(0, scene.predicted->end, width()));
}

TEST_F(PlaceTest, GoesBackToWhereItJumpedFrom) {
  const Viewport all = place.view();
  QSignalSpy changed(&place, &Place::changed);
  place.fit(1'000'000, 2'000'000);
  const Viewport first = place.view();
  EXPECT_EQ(first, fitted(1'000'000, 2'000'000, width(), width() / 8));
  place.revealTime(9'000'000, 9'100'000);
  EXPECT_EQ(changed.count(), 2);
  EXPECT_NEAR(place.view().start + place.view().end(), 2 * 9'050'000, 1) << "in the middle";
  place.back();
  EXPECT_NEAR(place.view().start, first.start, 1e-3);
  place.back();
  EXPECT_NEAR(place.view().start, all.start, 1e-3);
  EXPECT_NEAR(place.view().end(), all.end(), 1);
  place.back();
  EXPECT_NEAR(place.view().start, all.start, 1e-3) << "there is nothing before";
  place.forward();
  EXPECT_NEAR(place.view().start, first.start, 1e-3);
}

TEST_F(PlaceTest, ScrollsNoFurtherThanTheRows) {
  canvas.resize(1000, 200);
  place.resized();
  const int most = place.layout().height - place.geometry().tracks().height();
  ASSERT_GT(most, 0);
  EXPECT_EQ(bar.maximum(), most);
  place.scrollTo(100'000);
  EXPECT_EQ(place.scroll(), most);
  EXPECT_EQ(bar.value(), most);
  place.scrollPages(-100);
  EXPECT_EQ(place.scroll(), 0);
  place.revealRow({Source::Predicted, {Rank(3), TrackKind::Compute, 0}});
  const Row& row = place.layout().rows[*rowOf(place.layout(), {Source::Predicted, {Rank(3), TrackKind::Compute, 0}})];
  EXPECT_EQ(place.scroll(), row.top + row.height - place.geometry().tracks().height()) << "just far enough";
}

TEST_F(PlaceTest, RemembersWhatAProjectRestores) {
  place.setArrangement(Arrangement::Over);
  place.setColourBy(ColourBy::Stage);
  place.setRows(&Scene::showsMemory, false);
  place.changeRank(Rank(2), [](RankView& view) { view.pinned = true; });
  place.fit(1'000'000, 3'000'000);
  const SavedView saved = place.saved();
  place.setArrangement(Arrangement::Below);
  place.setColourBy(ColourBy::Kind);
  place.setRows(&Scene::showsMemory, true);
  place.changeRank(Rank(2), [](RankView& view) { view.pinned = false; });
  place.fitAll();
  EXPECT_NE(place.saved(), saved);
  place.restore(saved);
  const SavedView again = place.saved();
  EXPECT_EQ(again.ranks, saved.ranks);
  EXPECT_EQ(scene.arrangement, Arrangement::Over);
  EXPECT_EQ(scene.colourBy, ColourBy::Stage);
  EXPECT_FALSE(scene.showsMemory);
  ASSERT_TRUE(again.shown);
  EXPECT_NEAR(again.shown->first, saved.shown->first, 1e-3);
  EXPECT_NEAR(again.shown->second, saved.shown->second, 1e-3);
}

TEST_F(PlaceTest, HeightsOfRowsKeepTheRankAtTheMouse) {
  predict(smallPrediction("1f1b", 32, 8));
  place.takeTimelines(true, false);
  place.scrollTo(500);
  const int y = 300;
  const auto at = [&] { return *rankPlaceAt(place.layout(), place.scroll() + y); };
  const RankPlace before = at();
  for (const double factor : {1.25, 1.25, 0.8, 0.8, 0.8, 0.8}) {
    place.zoomRows(y, factor);
    EXPECT_EQ(at().rank, before.rank);
    EXPECT_NEAR(at().share, before.share, 0.06);
  }
  EXPECT_NEAR(scene.rowScale, 0.64, 1e-9);
  place.zoomRows(y, 1000);
  EXPECT_EQ(scene.rowScale, kMostRowScale);
  place.zoomRows(y, 1e-9);
  EXPECT_EQ(scene.rowScale, leastRowScale(scene));
  EXPECT_TRUE(bar.isHidden()) << "32 ranks of 8 pixels have room";
}

TEST_F(PlaceTest, RowsThatFitTheHeightGoOnFittingIt) {
  place.fitHeight();
  EXPECT_LE(place.layout().height, place.geometry().tracks().height());
  EXPECT_GT(scene.rowScale, 1);
  canvas.resize(1000, 300);
  place.resized();
  EXPECT_LE(place.layout().height, place.geometry().tracks().height());
  EXPECT_EQ(bar.maximum(), 0);
  const SavedView saved = place.saved();
  EXPECT_TRUE(saved.fitsHeight);
  place.normalHeight();
  EXPECT_EQ(scene.rowScale, 1);
  EXPECT_GT(bar.maximum(), 0);
  canvas.resize(1000, 250);
  place.resized();
  EXPECT_EQ(scene.rowScale, 1);
  place.back();
  EXPECT_LT(scene.rowScale, 1) << "a height is part of a view";
  place.normalHeight();
  place.restore(saved);
  EXPECT_EQ(bar.maximum(), 0);
  EXPECT_TRUE(place.saved().fitsHeight);
}

TEST_F(PlaceTest, CollapsesAndExpandsAllRanksAroundTheOneAtTheTop) {
  predict(smallPrediction("1f1b", 64, 8));
  place.takeTimelines(true, false);
  place.setRanks(withRankMoved(scene.ranks, Rank(2), 1));
  place.changeRank(Rank(5), [](RankView& view) { view.collapsed = true; });
  place.scrollTo(20 * 84);
  const auto top = [&] { return rankPlaceAt(place.layout(), place.scroll())->rank; };
  const Rank before = top();
  place.collapseAll(true);
  EXPECT_TRUE(std::ranges::all_of(scene.ranks, &RankView::collapsed));
  EXPECT_EQ(top(), before);
  EXPECT_EQ(place.layout().height, 4 + 64 * 17) << "rows of 13 and gaps of 4";
  place.collapseAll(false);
  EXPECT_TRUE(std::ranges::none_of(scene.ranks, &RankView::collapsed));
  EXPECT_EQ(top(), before);
  EXPECT_EQ(scene.ranks[3].rank, Rank(2)) << "the order stays";
}

TEST_F(PlaceTest, HundredsOfRanksScrollAtTheLeastHeight) {
  predict(smallPrediction("gpipe", 128, 4));
  place.takeTimelines(true, false);
  place.fitHeight();
  EXPECT_EQ(place.layout().height, 4 + 128 * kLeastRow);
  EXPECT_EQ(bar.maximum(), place.layout().height - place.geometry().tracks().height());
}

TEST_F(PlaceTest, OfNothingShowsNothing) {
  scene.predicted.reset();
  place.takeTimelines(true, false);
  EXPECT_TRUE(scene.ranks.empty());
  EXPECT_EQ(place.legendHeight(), 0);
  const Viewport before = place.view();
  place.zoomAt(10, 0.5, Place::Move::Jump);
  place.pan(100);
  place.fitAll();
  EXPECT_EQ(place.view(), before);
}

}  // namespace
}  // namespace pw::gui
