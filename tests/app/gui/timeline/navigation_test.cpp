#include "app/gui/timeline/facts/navigation.h"

#include <gtest/gtest.h>

#include <vector>

#include "app/gui/timeline/view_history.h"
#include "tests/app/gui/timeline/small_prediction.h"

namespace pw::gui {
namespace {

std::vector<int> order(const std::vector<RankView>& ranks) {
  std::vector<int> numbers;
  for (const RankView& view : ranks) numbers.push_back(view.rank.value);
  return numbers;
}

TEST(Navigation, NeighboursEndAtTheEnds) {
  const auto prediction = smallPrediction();
  const Timeline& t = prediction->timeline;
  const auto last = static_cast<std::int32_t>(t.ranks[1].compute.size()) - 1;
  const SpanRef first{Rank(1), TrackKind::Compute, 0};
  EXPECT_EQ(neighbour(t, first, 1).index, 1);
  EXPECT_EQ(neighbour(t, first, -1), first);
  EXPECT_EQ(neighbour(t, {Rank(1), TrackKind::Compute, last}, 1).index, last);
}

TEST(Navigation, NearestIsTheSpanUnderTheTimeOrTheNearerSide) {
  SpanTrack track;
  track.start = {10, 40};
  track.end = {20, 50};
  track.tags.resize(2);
  track.latestEnd = {50};
  track.ownEnd = {50};
  track.firstStart = {10};
  EXPECT_EQ(nearestSpan(track, 0), 0);
  EXPECT_EQ(nearestSpan(track, 15), 0);
  EXPECT_EQ(nearestSpan(track, 29), 0);
  EXPECT_EQ(nearestSpan(track, 31), 1);
  EXPECT_EQ(nearestSpan(track, 90), 1);
  EXPECT_FALSE(nearestSpan(SpanTrack{}, 0));
}

TEST(Navigation, ASpanIsKnownAgainByWhatItDoes) {
  const auto before = smallPrediction("1f1b", 4, 8), after = smallPrediction("gpipe", 4, 8);
  const auto& tags = before->timeline.ranks[2].compute.tags;
  for (std::size_t i = 0; i < tags.size(); ++i) {
    const auto same = sameSpan(after->timeline, {Rank(2), TrackKind::Compute, static_cast<std::int32_t>(i)}, tags[i]);
    ASSERT_TRUE(same);
    EXPECT_EQ(after->timeline.ranks[2].compute.tags[static_cast<std::size_t>(same->index)], tags[i]);
  }
  EXPECT_FALSE(sameSpan(after->timeline, {Rank(9), TrackKind::Compute, 0}, tags[0]));
  EXPECT_FALSE(sameSpan(smallPrediction("1f1b", 4, 4)->timeline, {Rank(2), TrackKind::Compute, 0},
                        {SpanKind::Forward, Stage(2), Microbatch(7), Rank(2)}));
}

TEST(Navigation, RanksKeepTheirPlaceAndStateWhenOthersComeAndGo) {
  const std::vector<RankView> shown{{Rank(2), true, false}, {Rank(0)}, {Rank(1), false, true}};
  EXPECT_EQ(rankViews(shown, 4), (std::vector<RankView>{{Rank(2), true, false}, {Rank(0)}, {Rank(1), false, true}, {Rank(3)}}));
  EXPECT_EQ(rankViews(shown, 2), (std::vector<RankView>{{Rank(0)}, {Rank(1), false, true}}));
  EXPECT_EQ(order(rankViews({{Rank(1)}, {Rank(1)}, {Rank(-1)}}, 2)), (std::vector{1, 0}));
}

TEST(Navigation, ARankMovesPastTheNextOneOfItsGroup) {
  const std::vector<RankView> ranks{{Rank(0)}, {Rank(1), true}, {Rank(2)}, {Rank(3), true}};
  EXPECT_EQ(order(withRankMoved(ranks, Rank(0), 1)), (std::vector{1, 2, 0, 3}));
  EXPECT_EQ(order(withRankMoved(ranks, Rank(3), -1)), (std::vector{0, 3, 1, 2}));
  EXPECT_EQ(order(withRankMoved(ranks, Rank(2), 1)), (std::vector{0, 1, 2, 3}));  // only a pinned one comes after it
  EXPECT_EQ(order(withRankMoved(ranks, Rank(7), 1)), (std::vector{0, 1, 2, 3}));
}

TEST(Navigation, ARankTakesAnothersPlace) {
  const std::vector<RankView> ranks{{Rank(0)}, {Rank(1)}, {Rank(2)}, {Rank(3), true}};
  EXPECT_EQ(order(withRankMovedTo(ranks, Rank(0), Rank(2))), (std::vector{1, 2, 0, 3}));
  EXPECT_EQ(order(withRankMovedTo(ranks, Rank(2), Rank(0))), (std::vector{2, 0, 1, 3}));
  EXPECT_EQ(order(withRankMovedTo(ranks, Rank(0), Rank(3))), (std::vector{0, 1, 2, 3}));
}

TEST(Navigation, AViewComesBackFromItsText) {
  SavedView view;
  view.shown = {-1234.5, 987654321.25};
  view.scroll = 17;
  view.ranks = {{Rank(1), true, false}, {Rank(0), false, true}};
  view.arrangement = Arrangement::Over;
  view.colourBy = ColourBy::Microbatch;
  view.differences = true;
  view.showsMemory = false;
  view.rowScale = 0.375;
  view.fitsHeight = true;
  EXPECT_EQ(parseView(toJson(view)), view);
  EXPECT_EQ(parseView(toJson(SavedView{})), SavedView{});
}

TEST(Navigation, WhatIsNoViewIsRefusedAndOddPartsAreLeftOut) {
  EXPECT_FALSE(parseView("not json"));
  EXPECT_FALSE(parseView("[1]"));
  const auto odd = parseView(R"({"from": 5, "to": 5, "scroll": -3, "ranks": [{"rank": -1}, {"rank": 2}, 7], "colourBy": "taste"})");
  ASSERT_TRUE(odd);
  EXPECT_FALSE(odd->shown);
  EXPECT_EQ(odd->scroll, 0);
  EXPECT_EQ(order(odd->ranks), std::vector{2});
  EXPECT_EQ(odd->colourBy, ColourBy::Kind);
  EXPECT_EQ(odd->rowScale, 1) << "as in projects of before there were heights";
  EXPECT_FALSE(odd->fitsHeight);
  EXPECT_EQ(parseView(R"({"scroll": 0, "rowScale": 1e9})")->rowScale, kMostRowScale);
}

TEST(Navigation, AViewEndsWhereTimesDo) {
  const auto latest = static_cast<double>(kLatestNote);
  for (const char* text : {R"({"from": -1e19, "to": 1e19})", R"({"from": -1e308, "to": 1e308})"}) {
    const auto view = parseView(text);
    ASSERT_TRUE(view && view->shown) << text;
    EXPECT_EQ(*view->shown, std::pair(-latest, latest)) << text;
  }
  EXPECT_FALSE(parseView(R"({"from": 1e18, "to": 1e19})")->shown) << "nothing of it is a time";
}

TEST(ViewHistory, GoesBackAndForwardAsABrowserDoes) {
  ViewHistory history;
  const VisitedView a{0, 10, 0}, b{2, 4, 0}, c{3, 4, 50};
  EXPECT_FALSE(history.back());
  for (const auto& view : {a, b, b, c}) history.visit(view);
  EXPECT_EQ(history.back(), b);
  EXPECT_EQ(history.back(), a);
  EXPECT_FALSE(history.back());
  EXPECT_EQ(history.forward(), b);
  history.visit(a);  // what was ahead is forgotten
  EXPECT_FALSE(history.forward());
  EXPECT_EQ(history.back(), b);
}

TEST(ViewHistory, ForgetsTheOldestFirst) {
  ViewHistory history;
  const auto most = static_cast<int>(ViewHistory::kMost);
  for (int i = 0; i < most + 5; ++i) history.visit({0, 1, i});
  int last = -1;
  while (const auto view = history.back()) last = view->scroll;
  EXPECT_EQ(last, 5);
}

}  // namespace
}  // namespace pw::gui
