#include "app/gui/timeline/selection.h"

#include <QSignalSpy>

#include "app/gui/timeline/finder.h"
#include "app/gui/timeline/selection_details.h"
#include "tests/app/gui/timeline/parts_fixture.h"

namespace pw::gui {
namespace {

using Emphasis = Selection::Emphasis;

/// A measured 1F1B of 4 ranks and 8 microbatches: F 1 ms, B 2 ms, from rank to rank 0.3 ms.
class SelectionTest : public PartsFixture {
 protected:
  SelectionTest() {
    measure(*smallPrediction());
    place.takeTimelines(true, false);
  }
  [[nodiscard]] SourcedSpan at(int rank, SpanKind kind, int stage, int microbatch) {
    return PartsFixture::at(Source::Measured, rank, kind, stage, microbatch);
  }
};

/// Those of the text in the find bar.
class FinderTest : public SelectionTest {
 protected:
  FindBar findBar{&window};
  Finder finder{scene, selection, findBar};
};

TEST_F(SelectionTest, IsOneThing) {
  QSignalSpy changed(&selection, &Selection::changed);
  EXPECT_TRUE(selection.isEmpty());
  selection.selectSpan(at(2, SpanKind::Forward, 2, 0));
  EXPECT_EQ(scene.selected, at(2, SpanKind::Forward, 2, 0));
  EXPECT_EQ(selection.rank(), Rank(2));
  selection.selectTimes(3'000'000, 1'000'000);
  EXPECT_FALSE(scene.selected);
  EXPECT_EQ(scene.range, std::pair(Ns{1'000'000}, Ns{3'000'000}));
  EXPECT_FALSE(selection.rank());
  selection.selectGap({Source::Measured, Rank(1), 0});
  EXPECT_FALSE(scene.range);
  EXPECT_TRUE(selection.gap());
  EXPECT_EQ(selection.emphasis(), Emphasis::Chain);
  EXPECT_TRUE(scene.dimsOthers) << "its causes stand out";
  selection.selectRank(Rank(3));
  EXPECT_TRUE(selection.isEmpty());
  EXPECT_EQ(selection.rank(), Rank(3));
  EXPECT_TRUE(scene.highlighted.empty());
  selection.clear();
  EXPECT_FALSE(selection.rank());
  EXPECT_EQ(changed.count(), 5);
}

TEST_F(SelectionTest, OfWhatIsNotThereIsNone) {
  selection.selectSpan(SourcedSpan{Source::Measured, {Rank(0), TrackKind::Compute, 16}});  // 8 forwards and 8 backwards: 0 to 15
  EXPECT_TRUE(selection.isEmpty());
  selection.selectSpan(SourcedSpan{Source::Predicted, {Rank(0), TrackKind::Compute, 0}});
  EXPECT_TRUE(selection.isEmpty());
  selection.selectGap({Source::Measured, Rank(0), 0});  // rank 0 begins at once
  EXPECT_TRUE(selection.isEmpty());
  selection.selectTimes(scene.measured->end, scene.measured->end + 5);
  EXPECT_TRUE(selection.isEmpty());
  selection.selectTimes(-5, scene.measured->end + 5);
  EXPECT_EQ(scene.range, std::pair(Ns{0}, scene.measured->end));
}

TEST_F(SelectionTest, WalksAlongTracksRowsAndDependencies) {
  selection.walk(1);
  EXPECT_EQ(scene.selected, at(0, SpanKind::Forward, 0, 0)) << "begins at what is shown";
  selection.walk(1);
  EXPECT_EQ(scene.selected, at(0, SpanKind::Forward, 0, 1));
  selection.follow(1);
  EXPECT_EQ(scene.selected, at(0, SpanKind::SendForward, 0, 1));
  selection.follow(1);
  EXPECT_EQ(scene.selected, at(1, SpanKind::Forward, 1, 1));
  selection.selectGap({Source::Measured, Rank(3), 0});
  selection.walk(1);
  EXPECT_EQ(scene.selected, at(3, SpanKind::Forward, 3, 0)) << "from a bubble to what it is before";
}

TEST_F(SelectionTest, StaysWithTheActionInAnotherTimeline) {
  const SourcedSpan before = at(0, SpanKind::Backward, 0, 0);
  EXPECT_EQ(before.span.index, 4) << "after the forwards that fill four stages";
  selection.selectSpan(before);
  measure(*smallPrediction("gpipe"));
  selection.keep(false);
  EXPECT_EQ(scene.selected, at(0, SpanKind::Backward, 0, 0));
  EXPECT_GE(scene.selected->span.index, 8) << "after all forwards";
  measure(*smallPrediction("1f1b", 2, 8));
  selection.selectSpan(at(1, SpanKind::Forward, 1, 7));
  measure(*smallPrediction("1f1b", 2, 4));
  selection.keep(false);
  EXPECT_TRUE(selection.isEmpty()) << "it has no microbatch 7";
}

TEST_F(SelectionTest, MarksTheCounterpartsOfWhatIsSelectedAndHovered) {
  predict(smallPrediction());
  const SourcedSpan selected = at(1, SpanKind::Forward, 1, 2), hovered = at(3, SpanKind::Backward, 3, 0);
  selection.selectSpan(selected);
  EXPECT_EQ(scene.highlighted.size(), 2u) << "it and its counterpart";
  selection.hover(hovered);
  EXPECT_EQ(scene.highlighted.size(), 4u);
  EXPECT_FALSE(scene.dimsOthers);
  selection.hover(std::nullopt);
  EXPECT_EQ(scene.highlighted.size(), 2u);
  selection.clear();
  EXPECT_TRUE(scene.highlighted.empty());
}

TEST_F(SelectionTest, ChosenBlocksGoWithTheirTimeline) {
  predict(smallPrediction());
  selection.choose(at(1, SpanKind::Forward, 1, 2));
  selection.choose(at(3, SpanKind::Backward, 3, 7));
  const SourcedSpan predicted = PartsFixture::at(Source::Predicted, 0, SpanKind::Forward, 0, 1);
  const auto said = [&] { return detailsOf(selection, scene, knowledge, false); };
  EXPECT_TRUE(said().startsWith(QStringLiteral("2 blocks chosen"))) << said().toStdString();
  measure(*smallPrediction("1f1b", 4, 4));  // has no eighth backward
  selection.keep(true);                     // as where a prediction is shown beside it
  EXPECT_EQ(selection.emphasized(), std::vector{at(1, SpanKind::Forward, 1, 2)});
  selection.choose(predicted);
  document.setMeasured(nullptr);
  shown.takeMeasured();
  knowledge.forget(Source::Measured);
  selection.keep(true);
  EXPECT_EQ(selection.emphasized(), std::vector{predicted});
  EXPECT_TRUE(said().startsWith(QStringLiteral("1 block chosen"))) << said().toStdString();
  selection.choose(predicted);
  EXPECT_EQ(selection.emphasis(), Emphasis::None);
}

TEST_F(SelectionTest, ChosenBlocksStayTheSameActions) {
  predict(smallPrediction());
  selection.choose(at(0, SpanKind::Backward, 0, 0));
  selection.choose(at(3, SpanKind::Forward, 3, 7));
  const std::vector before = selection.emphasized();
  measure(*smallPrediction("gpipe"));
  selection.keep(true);
  selection.markAlso();
  const std::vector same{at(0, SpanKind::Backward, 0, 0), at(3, SpanKind::Forward, 3, 7)};
  EXPECT_NE(same, before) << "they are at other places of their tracks";
  EXPECT_EQ(selection.emphasized(), same);
}

TEST_F(SelectionTest, WhereNoneOfThoseChosenIsLeftNothingIsChosen) {
  predict(smallPrediction());
  selection.choose(at(1, SpanKind::Forward, 1, 2));
  EXPECT_TRUE(scene.dimsOthers);
  document.setMeasured(nullptr);
  shown.takeMeasured();
  knowledge.forget(Source::Measured);
  selection.keep(true);
  EXPECT_EQ(selection.emphasis(), Emphasis::None);
  EXPECT_TRUE(scene.highlighted.empty());
  EXPECT_FALSE(scene.dimsOthers);
  EXPECT_TRUE(detailsOf(selection, scene, knowledge, false).isEmpty());
}

TEST_F(SelectionTest, ThoseChosenStayAsManyInAnotherTimelineOfTheSameShape) {
  predict(smallPrediction());
  const SourcedSpan first = PartsFixture::at(Source::Predicted, 1, SpanKind::Forward, 1, 2);
  const SourcedSpan second = PartsFixture::at(Source::Predicted, 3, SpanKind::Backward, 3, 0);
  selection.selectSpan(first);
  selection.choose(second);
  EXPECT_EQ(scene.highlighted.size(), 3u) << "both, and what was measured of the selected one";
  for (int edits = 0; edits < 2; ++edits) {
    predict(smallPrediction());
    selection.keep(true);
    selection.markAlso();
    EXPECT_EQ(selection.emphasized(), (std::vector{first, second}));
    EXPECT_EQ(scene.highlighted.size(), 3u);
  }
}

TEST_F(SelectionTest, IsSaidInWords) {
  const auto said = [&] { return detailsOf(selection, scene, knowledge, false); };
  EXPECT_TRUE(said().isEmpty());
  selection.selectSpan(at(1, SpanKind::Forward, 1, 0));
  EXPECT_TRUE(said().startsWith(QStringLiteral("1F0 · rank 1 · "))) << said().toStdString();
  selection.selectGap({Source::Measured, Rank(1), 0});
  EXPECT_TRUE(said().startsWith(QStringLiteral("Rank 1 waits 1.3"))) << said().toStdString();
}

TEST_F(FinderTest, HighlightsAllAndSelectsTheFirst) {
  EXPECT_EQ(finder.search(QStringLiteral("2F"), true), 8) << "of each microbatch";
  EXPECT_EQ(scene.highlighted.size(), 8u);
  EXPECT_EQ(selection.emphasis(), Emphasis::Found);
  EXPECT_EQ(scene.selected, at(2, SpanKind::Forward, 2, 0));
  finder.step(-1);
  EXPECT_EQ(scene.selected, at(2, SpanKind::Forward, 2, 7)) << "around the end";
  finder.step(1);
  finder.step(1);
  EXPECT_EQ(scene.selected, at(2, SpanKind::Forward, 2, 1));
  finder.close();
  EXPECT_TRUE(scene.highlighted.empty());
  EXPECT_EQ(scene.selected, at(2, SpanKind::Forward, 2, 1)) << "what is selected stays";
  EXPECT_EQ(finder.search(QStringLiteral("F 9"), true), 0);
}

TEST_F(FinderTest, SearchesOtherTimelinesForTheSame) {
  finder.search(QStringLiteral("1F"), true);
  finder.step(1);
  measure(*smallPrediction("1f1b", 4, 5));
  selection.keep(false);
  finder.forget();
  EXPECT_TRUE(scene.highlighted.empty());
  finder.refresh();
  EXPECT_EQ(scene.highlighted.size(), 5u);
  EXPECT_EQ(scene.selected, at(1, SpanKind::Forward, 1, 1)) << "selects nothing else";
}

}  // namespace
}  // namespace pw::gui
