#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/cell_times.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <QSignalSpy>
#include <QTest>
#include <algorithm>
#include <random>
#include <set>

#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "app/gui/timeline/widget.h"
#include "schedules/check.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "schedules/lower.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

Schedule scheduleOf(const Document& document) { return std::get<Schedule>(editableSchedule(document)); }

/// `2F0`, with a stage and a microbatch of one digit.
Action action(std::string_view name) {
  for (const ActionKind kind : {ActionKind::Forward, ActionKind::Backward, ActionKind::BackwardInput, ActionKind::BackwardWeight}) {
    const Action one{Stage{name.front() - '0'}, kind, Microbatch{name.back() - '0'}};
    if (toString(one) == name) return one;
  }
  throw UsageError("no action " + std::string(name));
}

struct HandEditTest : testing::Test {
  void SetUp() override {
    document.adopt(*loadFiles({kGpt}, {}));
    document.edit("Shape", [](Design& d) { d.request.microbatches = 6; });
    ASSERT_TRUE(predicted());
    hand.setOn(true);
    ASSERT_TRUE(hand.isOn());
  }
  bool predicted() {
    return QTest::qWaitFor([this] { return !document.isPredicting(); }, kLongMs);
  }
  /// `1F0` at its rank's row: position.
  int placeOf(std::string_view name) const {
    for (const auto& row : scheduleOf(document).rows) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        if (toString(row[i]) == name) return static_cast<int>(i);
      }
    }
    return -1;
  }
  /// The middle of an action on the timeline that is shown.
  std::pair<Rank, Ns> middleOf(std::string_view name) const {
    const Action a = action(name);
    for (std::size_t r = 0; r < document.prediction()->timeline.ranks.size(); ++r) {
      const SpanTrack& track = document.prediction()->timeline.ranks[r].compute;
      for (std::size_t i = 0; i < track.size(); ++i) {
        const bool same = track.tags[i].stage == a.stage && track.tags[i].microbatch == a.microbatch;
        if (same && track.tags[i].kind == spanKind(a.kind)) return {Rank{r}, (track.start[i] + track.end[i]) / 2};
      }
    }
    ADD_FAILURE() << "no " << name;
    return {};
  }
  Document document;
  HandEdit hand{document};
};

TEST_F(HandEditTest, DragsAnActionToAnotherPlaceAsOneUndoStep) {
  const Design first = document.design();
  hand.select(action("0B0"));
  ASSERT_TRUE(hand.beginDrag(action("0B0")));
  const auto [rank, past] = middleOf("0B2");
  hand.dragTo(rank, past + 1);
  ASSERT_TRUE(hand.drop().has_value());
  EXPECT_TRUE(hand.drop()->isLegal);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(placeOf("0B0"), placeOf("0B2") + 1) << "shown while it is dragged";
  hand.dragTo(rank, middleOf("0B0").second);
  hand.endDrag(true);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design().request.schedule, "1f1b, edited");
  EXPECT_EQ(document.undoText(), "Move 0B0");
  EXPECT_THAT(hand.message().toStdString(), testing::StartsWith("Step "));
  document.undo();
  EXPECT_EQ(document.design(), first);
}

TEST_F(HandEditTest, RefusesAnIllegalDropWithTheCycleAndChangesNothing) {
  const Design first = document.design();
  QSignalSpy refused(&hand, &HandEdit::refused);
  ASSERT_TRUE(hand.beginDrag(action("2B0")));
  hand.dragTo(Rank{2}, 0);
  EXPECT_FALSE(hand.drop()->isLegal);
  hand.endDrag(true);
  EXPECT_EQ(document.design(), first);
  ASSERT_EQ(refused.count(), 1);
  EXPECT_EQ(hand.message(), "2B0 needs 2F0, which comes after it.");
  EXPECT_EQ(hand.cycle().size(), 2U);
}

TEST_F(HandEditTest, MovesAStageToTheRankThatItIsDroppedOn) {
  ASSERT_TRUE(hand.beginDrag(action("1F2")));
  hand.dragTo(Rank{3}, 0);
  EXPECT_TRUE(hand.drop()->movesStage);
  EXPECT_FALSE(hand.drop()->isLegal) << "rank 1 would have no work";
  hand.endDrag(true);
  EXPECT_EQ(
      hand.message(),
      "Moving stage 1 to rank 3 would leave rank 1 without work; every rank keeps a stage, so use 2 or more chunks per rank to move one.");

  document.edit("Chunks", [](Design& d) { d.request.schedule = "interleaved-1f1b", d.request.chunks = 2, d.request.microbatches = 8; });
  ASSERT_TRUE(predicted());
  ASSERT_TRUE(hand.beginDrag(action("1F2")));
  hand.dragTo(Rank{3}, 0);
  EXPECT_TRUE(hand.drop()->isLegal);
  hand.endDrag(true);
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(document.problem().isEmpty()) << document.problem().toStdString();
  EXPECT_EQ(document.prediction()->rows->placement.rankOfStage[1], Rank{3});
}

TEST_F(HandEditTest, TurnsOneFOneBIntoZbH1) {
  for (const auto& row : scheduleOf(document).rows) {
    for (const Action& a : row) {
      if (a.kind == ActionKind::Backward) hand.select(a, HandEdit::Extends::One);
    }
  }
  hand.splitOrMerge();
  const Schedule target = generate("zb-h1", {4, 4, 6});
  for (std::size_t r = 0; r < 4; ++r) {
    for (std::size_t i = 0; i < target.rows[r].size(); ++i) {
      const std::string name = toString(target.rows[r][i]);
      if (placeOf(name) == static_cast<int>(i)) continue;
      ASSERT_TRUE(predicted());
      hand.select(action(name));
      ASSERT_TRUE(hand.beginDrag(action(name))) << name;
      const auto [rank, before] = middleOf(toString(scheduleOf(document).rows[r][i]));
      hand.dragTo(rank, before - 1);
      hand.endDrag(true);
      ASSERT_EQ(placeOf(name), static_cast<int>(i)) << name << ": " << hand.message().toStdString();
    }
  }
  ASSERT_TRUE(predicted());
  const auto edited = document.prediction();
  document.edit("zb-h1", [](Design& d) { d.request.schedule = "zb-h1"; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(edited->step, document.prediction()->step);
  EXPECT_EQ(edited->makespan, document.prediction()->makespan);
  EXPECT_EQ(edited->bubbleFraction, document.prediction()->bubbleFraction);
  EXPECT_EQ(edited->ranks, document.prediction()->ranks);
}

TEST_F(HandEditTest, ItsScheduleStaysInTheListAdaptsAndIsSaved) {
  hand.select(action("0B1"));
  hand.shift(1);
  ASSERT_TRUE(predicted());
  const auto drawn = drawnOf(document.design());
  ASSERT_NE(drawn, nullptr);
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(drawnNamed(document.design(), "1f1b, edited"), drawn);
  document.edit("back", [](Design& d) { d.request.schedule = "1f1b, edited", d.request.microbatches = 4; });
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(document.problem().isEmpty()) << document.problem().toStdString();
  EXPECT_EQ(document.prediction()->rows->microbatches, 4);
  document.edit("ranks", [](Design& d) { d.request.ranks = 2; });
  ASSERT_TRUE(predicted());
  EXPECT_THAT(document.problem().toStdString(), testing::HasSubstr("was drawn for 4 ranks"));
  document.undo();
  ASSERT_TRUE(predicted());

  const test::Folder folder;
  const std::string path = folder.with("one.pwproj", toJson(Project{document.design(), {}, {}}));
  Document again;
  again.adopt(*loadFiles({path}, {}));
  ASSERT_TRUE(QTest::qWaitFor([&] { return !again.isPredicting(); }, kLongMs));
  EXPECT_EQ(*drawnOf(again.design()), *drawn);
  EXPECT_EQ(again.prediction()->step, document.prediction()->step);
}

TEST_F(HandEditTest, ImprovesAnOrderFromWhereItIs) {
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  const Ns before = document.prediction()->step;
  hand.improve();
  ASSERT_TRUE(QTest::qWaitFor([&] { return !hand.isImproving(); }, kLongMs));
  ASSERT_TRUE(predicted());
  EXPECT_LT(document.prediction()->step, before);
  EXPECT_EQ(document.undoText(), "Improve the order");
  EXPECT_TRUE(check(scheduleOf(document)).empty());
  document.undo();
  EXPECT_EQ(document.design().request.schedule, "gpipe");
}

TEST_F(HandEditTest, DoesNotImproveAnOrderWithOverlappedPairs) {
  for (const char* name : {"dualpipev", "1f1b"}) {
    document.edit("schedule", [&](Design& d) { d.request.schedule = name, d.request.chunks = 0, d.request.microbatches = 16; });
    ASSERT_TRUE(predicted());
    ASSERT_EQ(document.problem(), QString());
    if (std::string_view(name) == "1f1b") {  // a pair by hand
      hand.select(action("0F5"));
      hand.pairOrUnpair();
      ASSERT_TRUE(predicted());
    }
    const Schedule before = scheduleOf(document);
    ASSERT_TRUE(std::ranges::any_of(before.rows, [](const auto& row) { return std::ranges::any_of(row, &Action::overlapsNext); })) << name;
    hand.improve();
    ASSERT_TRUE(QTest::qWaitFor([&] { return !hand.isImproving(); }, kLongMs));
    EXPECT_TRUE(hand.isRefused());
    EXPECT_TRUE(hand.message().startsWith("An order with overlapped pairs cannot be improved")) << hand.message().toStdString();
    EXPECT_EQ(scheduleOf(document), before) << name;
  }
}

TEST_F(HandEditTest, WhereADropIsLegalTheScheduleIsSoundAndPairsStay) {
  document.edit("schedule", [](Design& d) { d.request.schedule = "dualpipev", d.request.chunks = 0, d.request.microbatches = 16; });
  ASSERT_TRUE(predicted());
  const Schedule before = scheduleOf(document);
  const auto pairs = [](const Schedule& schedule) {
    std::set<std::pair<Action, Action>> found;
    for (const auto& row : schedule.rows) {
      for (std::size_t i = 0; i + 1 < row.size(); ++i) {
        if (row[i].overlapsNext) found.emplace(row[i], row[i + 1]);
      }
    }
    return found;
  };
  ASSERT_FALSE(pairs(before).empty());
  const SpanTrack track = document.prediction()->timeline.ranks[1].compute;  // a drag shows another
  int legal = 0;
  for (std::size_t i = 0; i < before.rows[1].size(); i += 3) {
    Action dragged = before.rows[1][i];
    dragged.overlapsNext = false;
    ASSERT_TRUE(predicted());
    ASSERT_TRUE(hand.beginDrag(dragged)) << toString(dragged);
    for (std::size_t at = 0; at < 5 * track.size(); ++at) {
      const Ns start = track.start[at / 5], length = track.end[at / 5] - start;
      hand.dragTo(Rank{1}, start + length * static_cast<std::int64_t>(at % 5) / 5);
      const Schedule now = scheduleOf(document);
      if (!hand.drop()->isLegal || now == before) continue;
      ++legal;
      ASSERT_THAT(check(now), testing::IsEmpty()) << toString(dragged) << " over span " << at / 5;
      ASSERT_EQ(pairs(now), pairs(before)) << toString(dragged) << " over span " << at / 5;
    }
    hand.endDrag(false);
    ASSERT_EQ(scheduleOf(document), before);
  }
  EXPECT_GT(legal, 0);
}

TEST_F(HandEditTest, OfManyRandomOnesUndoGivesBackTheFirstDocument) {
  constexpr std::uint64_t kSeed = 3;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  const Design first = document.design();
  int accepted = 0, refusedCount = 0;
  QSignalSpy refused(&hand, &HandEdit::refused);
  for (int i = 0; i < 2000; ++i) {
    const Schedule before = scheduleOf(document);
    const auto& row = before.rows[random() % before.rows.size()];
    Action a = row[random() % row.size()];
    if (a.kind == ActionKind::Idle) continue;
    a.overlapsNext = false;
    hand.select(a, random() % 4 == 0 ? HandEdit::Extends::One : HandEdit::Extends::No);
    const auto count = refused.count();
    switch (random() % 8) {
      case 0: hand.splitOrMerge(); break;
      case 1: hand.pairOrUnpair(); break;
      case 2: hand.addPause(); break;
      case 3: hand.removePauses(); break;
      case 4: hand.swapTwo(); break;
      case 5: hand.repeat(); break;
      case 6: hand.moveStages(1); break;
      default: hand.shift(static_cast<int>(random() % 5) - 2); break;
    }
    const Schedule after = scheduleOf(document);
    ASSERT_TRUE(check(after).empty());
    if (refused.count() > count) {
      ASSERT_EQ(after, before);
      ++refusedCount;
    } else {
      ++accepted;
    }
  }
  EXPECT_GT(accepted, 300);
  EXPECT_GT(refusedCount, 300);
  while (document.design() != first && !document.undoText().isEmpty()) document.undo();
  EXPECT_EQ(document.design(), first);
  ASSERT_TRUE(predicted());
}

TEST_F(HandEditTest, EditsAScheduleWithoutAModelToo) {
  const test::Folder folder;
  const std::string path = folder.with("mine.csv", "0F0,0F1,0B0,0B1\r\n1F0,1B0,1F1,1B1\r\n");
  document.adopt(*loadFiles({path}, {}));
  ASSERT_TRUE(predicted());
  hand.setOn(true);
  hand.select(action("1F1"));
  hand.shift(-1);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(toCsv(scheduleOf(document)), "0F0,0F1,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  EXPECT_EQ(document.prediction()->makespan, 9'000'000) << "F0 of both, F1, B0, B1 of rank 1, B1 of rank 0: 1 + 1 + 1 + 2 + 2 + 2 ms";
}

TEST(DifferenceText, ShowsADifferenceThatRoundingWouldHide) {
  Prediction before;
  before.step = Ns(14'500'000'000);
  before.bubbleFraction = 0.21;
  before.ranks.resize(1);
  before.ranks[0].peakBytes = Bytes(std::int64_t{1} << 30);
  Prediction after = before;
  EXPECT_EQ(differenceText(before, after).toStdString(), "Step 14.5 s, as before, bubble 21.0 %, peak memory 1.00 GiB");
  after.step += Ns(1'200'000);
  after.bubbleFraction = 0.24;
  EXPECT_EQ(differenceText(before, after).toStdString(), "Step 14.5 s (+1.20 ms), bubble 21.0 % → 24.0 %, peak memory 1.00 GiB");
  EXPECT_TRUE(differenceText(after, before).startsWith(QStringLiteral("Step 14.5 s (−1.20 ms), bubble 24.0 % → 21.0 %")));
  after.step = 2 * before.step;
  EXPECT_TRUE(differenceText(before, after).startsWith(QStringLiteral("Step 14.5 s → 29.0 s (+100.0 %)")));
}

}  // namespace
}  // namespace pw::gui
