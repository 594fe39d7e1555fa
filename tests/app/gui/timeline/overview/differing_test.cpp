#include "app/gui/timeline/overview/differing.h"

#include <QAction>
#include <algorithm>

#include "tests/app/gui/timeline/timeline_fixture.h"

namespace pw::gui {
namespace {

/// A timeline whose ranks do one forward each, for so many microseconds.
Timeline busyFor(const std::vector<Ns>& microseconds) {
  Trace trace;
  trace.ranks = static_cast<int>(microseconds.size());
  for (std::size_t r = 0; r < microseconds.size(); ++r) {
    Span span;
    span.rank = Rank(r);
    span.kind = SpanKind::Forward;
    span.stage = Stage(r);
    span.microbatch = Microbatch(0);
    span.end = 1000 * microseconds[r];
    trace.spans.push_back(span);
  }
  return timelineOf(trace);
}

TEST(Differing, AreTheRanksFurthestFromTheMedian) {
  // Median of 80, 100, 100, 100, 101, 130, 150: 100; distances 20, 0, 0, 0, 1, 30, 50.
  const Timeline timeline = busyFor({100, 130, 100, 80, 101, 150, 100});
  const Differing two = ranksThatDiffer(timeline, 2);
  EXPECT_EQ(two.median, 100'000);
  EXPECT_EQ(two.end, 150'000);
  EXPECT_EQ(two.ranks, (std::vector<BusyRank>{{Rank(1), 130'000}, {Rank(5), 150'000}}));
  EXPECT_EQ(two.more, 2u) << "80, and 101, which is a hundredth off";
  EXPECT_EQ(ranksOf(ranksThatDiffer(timeline, 9)), (std::vector{Rank(1), Rank(3), Rank(4), Rank(5)}));
}

TEST(Differing, OfTwoInTheMiddleTheMeanCountsAndTiesGoToTheLowerRank) {
  // Median of 90, 100, 110, 120: 105; distances 15, 5, 5, 15.
  const Differing differing = ranksThatDiffer(busyFor({120, 100, 110, 90}), 1);
  EXPECT_EQ(differing.median, 105'000);
  EXPECT_EQ(differing.ranks, (std::vector<BusyRank>{{Rank(0), 120'000}}));
  EXPECT_EQ(differing.more, 3u);
}

TEST(Differing, EqualRanksDoNot) {
  EXPECT_TRUE(ranksThatDiffer(busyFor({1000, 1000, 1009}), 5).ranks.empty()) << "less than a hundredth";
  EXPECT_TRUE(ranksThatDiffer(Timeline{}, 5).ranks.empty());
  EXPECT_EQ(textOf(ranksThatDiffer(busyFor({1000, 1000}), 5)), QStringLiteral("All ranks are busy for about the same time, 1.00 ms."));
}

TEST(Differing, AreATableInTheDetails) {
  const QStringList lines = textOf(ranksThatDiffer(busyFor({100, 100, 100, 150, 130}), 1)).split(QLatin1Char('\n'));
  ASSERT_EQ(lines.size(), 2);
  EXPECT_TRUE(lines[0].contains(QStringLiteral("; 1 more differ less"))) << lines[0].toStdString();
  EXPECT_EQ(lines[1], QStringLiteral("rank 3\tbusy 150 µs (+50.0 %)\tidle 0 ns"));
}

using DifferingInTheTimeline = TimelineFixture;

TEST_F(DifferingInTheTimeline, ArePinnedAndTheOthersCollapsed) {
  open("1f1b", 16, 8);
  key(Qt::Key_D, Qt::ShiftModifier);
  EXPECT_TRUE(std::ranges::none_of(widget.scene().ranks, &RankView::pinned)) << "all stages cost the same";
  EXPECT_TRUE(widget.details().contains(QStringLiteral("about the same time"))) << widget.details().toStdString();
  recost([](CostTable& costs) { costs.stages[11].forward *= 3; });
  key(Qt::Key_H);
  key(Qt::Key_D, Qt::ShiftModifier);
  EXPECT_EQ(widget.scene().rowScale, 1) << "so that there is something to see";
  for (const RankView& rank : widget.scene().ranks) {
    EXPECT_EQ(rank.pinned, rank.rank == Rank(11)) << rank.rank.value;
    EXPECT_EQ(rank.collapsed, rank.rank != Rank(11)) << rank.rank.value;
  }
  // 8 microbatches of 1 + 2 ms, and of 3 + 2 ms.
  EXPECT_TRUE(widget.details().contains(QStringLiteral("rank 11\tbusy 40.0 ms (+66.7 %)"))) << widget.details().toStdString();
  const auto& actions = widget.rowActions();
  const auto unpin = std::ranges::find(actions, QStringLiteral("Unpin all ranks"), &QAction::text);
  ASSERT_NE(unpin, actions.end());
  (*unpin)->trigger();
  EXPECT_TRUE(std::ranges::none_of(widget.scene().ranks, &RankView::pinned));
}

}  // namespace
}  // namespace pw::gui
