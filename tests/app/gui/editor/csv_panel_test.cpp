#include "app/gui/editor/csv_panel.h"

#include <gmock/gmock.h>

#include <QLabel>
#include <QPlainTextEdit>
#include <QTextBlock>
#include <algorithm>
#include <functional>

#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
#include "app/gui/editor/rank_text.h"
#include "app/gui/timeline/hand_edit.h"
#include "app/gui/timeline/widget.h"
#include "schedules/csv.h"
#include "schedules/generate.h"
#include "tests/app/gui/window_fixture.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

struct CsvPanelTest : testing::Test {
  void SetUp() override {
    document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
    document.edit("Shape", [](Design& d) { d.request.ranks = 2, d.request.microbatches = 2; });
    panel.show();
    ASSERT_TRUE(predicted());
    text = panel.findChild<QPlainTextEdit*>();
    ASSERT_NE(text, nullptr);
  }
  bool predicted() {
    return QTest::qWaitFor([this] { return !document.isPredicting(); }, 60'000);
  }
  Document document;
  CsvPanel panel{document};
  QPlainTextEdit* text = nullptr;
};

TEST_F(CsvPanelTest, FollowsTheDocument) {
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1");
}

TEST_F(CsvPanelTest, WhatIsTypedBecomesTheScheduleAndUndoTakesItBack) {
  text->setPlainText("0F0,0F1,,0B0,0B1\n1F0,1F1,1B0,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return drawnOf(document.design()) != nullptr; }, 60'000));
  EXPECT_EQ(toCsv(*drawnOf(document.design())), "0F0,0F1,,0B0,0B1\r\n1F0,1F1,1B0,1B1\r\n");
  EXPECT_TRUE(panel.problem().isEmpty());
  ASSERT_TRUE(predicted());
  document.undo();
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
}

TEST_F(CsvPanelTest, MarksTheCellThatIsWrong) {
  const Design before = document.design();
  const auto marked = [&] {
    const auto marks = text->extraSelections();
    return marks.isEmpty() ? std::string() : marks.front().cursor.selectedText().toStdString();
  };
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  EXPECT_EQ(marked(), "1X0");
  text->setPlainText("0F0,0F1,0B0,0B1\n1B0,1F0,1F1,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return marked() == "1B0"; }, 60'000)) << marked();
  EXPECT_THAT(panel.problem().toStdString(), testing::HasSubstr("Rank 1"));
  EXPECT_EQ(document.design(), before);
}

TEST_F(CsvPanelTest, UnderlinesTheRowThatLacksAnAction) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B0,1F1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  EXPECT_EQ(panel.problem(), "Rank 1: 1B1 is missing: rank 1, which holds stage 1, never does it.");
  ASSERT_FALSE(text->extraSelections().isEmpty());
  EXPECT_EQ(text->extraSelections().front().cursor.selectedText(), "1F0,1B0,1F1");
}

TEST_F(CsvPanelTest, MarksTheCellOfAMicrobatchThatThePlanDoesNotHave) {
  text->setPlainText("0F0,0F1,0B0,0B1,0F3\n1F0,1B0,1F1,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  EXPECT_EQ(
      panel.problem().toStdString(),
      "Rank 0: 0F3 is of a microbatch that the plan does not have (0 to 1). Change it, or add the rest: 0F2 is missing: rank 0, which "
      "holds stage 0, never does it.");
  ASSERT_FALSE(text->extraSelections().isEmpty());
  EXPECT_EQ(text->extraSelections().front().cursor.selectedText(), "0F3");
  text->setPlainText("0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2");
  ASSERT_TRUE(QTest::qWaitFor([&] { return document.design().request.microbatches == 3; }, 60'000)) << "whole ones may be added";
}

TEST_F(CsvPanelTest, MarksTheCellOfAStageThatThePlanDoesNotHave) {
  const auto marked = [&] {
    const auto selections = text->extraSelections();
    return selections.isEmpty() ? std::string() : selections.front().cursor.selectedText().toStdString();
  };
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,2F0");
  ASSERT_TRUE(QTest::qWaitFor([&] { return marked() == "2F0"; }, 60'000)) << panel.problem().toStdString();
  EXPECT_THAT(panel.problem().toStdString(), testing::StartsWith("Rank 1: 2F0 is of a stage that the plan does not have (0 to 1). Change"));
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1,7F0");
  ASSERT_TRUE(QTest::qWaitFor([&] { return marked() == "7F0"; }, 60'000)) << panel.problem().toStdString();
  EXPECT_THAT(panel.problem().toStdString(), testing::HasSubstr("tage 2 of 8 has no compute action"));
}

TEST_F(CsvPanelTest, SaysWhyAPlanHasNoSchedule) {
  document.edit("refused", [](Design& d) {
    d.request.schedule = "dualpipe";
    d.request.microbatches = 3;
  });
  ASSERT_TRUE(predicted());
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_TRUE(text->toPlainText().isEmpty());
  EXPECT_TRUE(text->placeholderText().startsWith("Schedule dualpipe")) << text->placeholderText().toStdString();
  Document none;
  CsvPanel empty(none);
  empty.show();
  EXPECT_EQ(empty.findChild<QPlainTextEdit*>()->placeholderText(), "Open a model or a schedule to see the order of its actions here.");
}

TEST_F(CsvPanelTest, SaysWhereACellCannotBeRead) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1X0,1F1,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  EXPECT_TRUE(panel.problem().startsWith("Row 2 (rank 1), cell 2: \"1X0\" is not an action")) << panel.problem().toStdString();
  EXPECT_FALSE(panel.problem().contains("SEND")) << "the editor refuses messages: " << panel.problem().toStdString();
  EXPECT_TRUE(panel.problem().endsWith('.')) << panel.problem().toStdString();
}

TEST_F(CsvPanelTest, EachRowHasItsRankInTheMargin) {
  panel.resize(400, 200);
  panel.show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(&panel));
  auto& rows = dynamic_cast<RankText&>(*text);
  EXPECT_EQ(rows.labelOf(1), "rank 1");
  EXPECT_TRUE(rows.margin()->isVisible());
  EXPECT_GT(rows.margin()->width(), rows.margin()->fontMetrics().horizontalAdvance("rank 1"));
  EXPECT_EQ(rows.margin()->geometry().right() + 1, text->viewport()->geometry().left());
}

TEST_F(CsvPanelTest, TheBlockAndTheCellThatAreSelectedAreTheSame) {
  TimelineWidget timeline(document);
  panel.follow(timeline);
  for (QWidget* widget : {static_cast<QWidget*>(&timeline), static_cast<QWidget*>(&panel)}) {
    widget->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(widget));
  }
  ASSERT_TRUE(predicted());
  const auto find = [&](SpanKind kind, int stage, int microbatch) {
    return SourcedSpan{Source::Predicted,
                       findAction(document.prediction()->timeline, Rank{stage}, kind, Stage{stage}, Microbatch{microbatch}).value()};
  };
  timeline.activateWindow();
  timeline.setFocus();
  ASSERT_TRUE(QTest::qWaitFor([&] { return !text->hasFocus(); }, 10'000));
  timeline.select(find(SpanKind::Forward, 1, 1));
  ASSERT_FALSE(text->extraSelections().isEmpty());
  EXPECT_EQ(text->extraSelections().front().cursor.selectedText(), "1F1");
  EXPECT_EQ(text->textCursor().blockNumber(), 1);
  EXPECT_EQ(text->textCursor().positionInBlock(), 8);

  panel.activateWindow();
  text->setFocus();
  ASSERT_TRUE(QTest::qWaitFor([&] { return text->hasFocus(); }, 10'000));
  QTest::keyClick(text, Qt::Key_Home);
  EXPECT_EQ(timeline.scene().selected, find(SpanKind::Forward, 1, 0));
  QTest::keyClick(text, Qt::Key_Up);
  EXPECT_EQ(timeline.scene().selected, find(SpanKind::Forward, 0, 0));
  QTest::keyClick(text, Qt::Key_End);
  EXPECT_EQ(timeline.scene().selected, find(SpanKind::Backward, 0, 1));
  EXPECT_EQ(text->extraSelections().front().cursor.selectedText(), "0B1");
  timeline.clearSelection();
  EXPECT_TRUE(text->extraSelections().isEmpty());
}

struct CsvBesideTimeline : CsvPanelTest {
  void SetUp() override {
    CsvPanelTest::SetUp();
    panel.follow(timeline);
    for (QWidget* widget : {static_cast<QWidget*>(&timeline), static_cast<QWidget*>(&panel)}) {
      widget->show();
      ASSERT_TRUE(QTest::qWaitForWindowExposed(widget));
    }
    timeline.hand().setOn(true);
    panel.activateWindow();
    text->setFocus();
    ASSERT_TRUE(QTest::qWaitFor([&] { return text->hasFocus(); }, 10'000));
  }
  void putCursorInto(int row, int column) {
    QTextCursor cursor(text->document()->findBlockByNumber(row));
    cursor.setPosition(cursor.position() + column);
    text->setTextCursor(cursor);
  }
  TimelineWidget timeline{document};
};

TEST_F(CsvBesideTimeline, AnEditIsOfTheCellWithTheCursor) {
  const Action other{Stage{0}, ActionKind::Forward, Microbatch{0}};
  timeline.hand().select(other);
  putCursorInto(1, 9);  // in 1F1
  EXPECT_THAT(timeline.hand().selection(), testing::ElementsAre(Action{Stage{1}, ActionKind::Forward, Microbatch{1}}));
  timeline.hand().addPause();
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B0,,1F1,1B1");
  timeline.hand().select(other);
  putCursorInto(1, 8);  // in the pause
  EXPECT_TRUE(timeline.hand().selection().empty());
  EXPECT_FALSE(timeline.scene().selected);
}

TEST_F(CsvBesideTimeline, UnfinishedTextIsNotLostByADrag) {
  const std::string unfinished = "0F0,0F1,0B0,0B1\n1F0,1B";
  const auto refusal = [&](const std::function<void(HandEdit&)>& edit) {
    timeline.hand().select({Stage{0}, ActionKind::Backward, Microbatch{0}});
    edit(timeline.hand());
    EXPECT_EQ(text->toPlainText().toStdString(), unfinished);
    return timeline.hand().isRefused() ? timeline.hand().message().toStdString() : "";
  };
  const std::string sentence = "The text in Schedule is unfinished; complete it, or press Ctrl+Z in it, first.";
  const auto drag = [](HandEdit& hand) { EXPECT_FALSE(hand.beginDrag({Stage{0}, ActionKind::Backward, Microbatch{0}})); };
  const Design before = document.design();
  text->setPlainText(QString::fromStdString(unfinished));
  EXPECT_EQ(refusal(drag), sentence) << "while it is typed";
  EXPECT_EQ(refusal(drag), sentence) << "afterwards";
  EXPECT_EQ(refusal([](HandEdit& hand) { hand.shift(-1); }), sentence);
  EXPECT_EQ(document.design(), before);
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B0,,1F1,1B1");
  timeline.hand().shift(1);
  ASSERT_NE(drawnOf(document.design()), nullptr) << "what is finished is taken first";
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B1,0B0\n1F0,1B0,,1F1,1B1");
}

TEST_F(CsvPanelTest, KeepsWhatIsNotRightYetWhileThePlanChangesOtherwise) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  document.edit("Limit", [](Design& d) { d.request.memoryLimit = 1 << 30; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B");
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B") << "also beside another schedule";
  const auto labels = panel.findChildren<QLabel*>();
  const auto* label = *std::ranges::find(labels, "What is wrong with the schedule", &QWidget::accessibleName);
  EXPECT_EQ(label->text(), panel.problem() + " The plan has another schedule by now; Ctrl+Z in this text shows it.");
  document.undo();
  ASSERT_TRUE(predicted());
  EXPECT_EQ(label->text(), panel.problem()) << "that which it was typed in";
  document.redo();
  ASSERT_TRUE(predicted());
  QTest::keyClick(text, Qt::Key_Z, Qt::ControlModifier);
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1");
  EXPECT_TRUE(panel.problem().isEmpty());
}

TEST_F(CsvPanelTest, UnfinishedTextBesideAnotherScheduleBecomesAnEditOfThat) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  EXPECT_FALSE(text->isReadOnly());
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1");
  ASSERT_TRUE(QTest::qWaitFor([&] { return drawnOf(document.design()) != nullptr; }, 60'000));
  EXPECT_EQ(document.design().request.schedule, "gpipe, edited");
  document.undo();
  EXPECT_EQ(document.design().request.schedule, "gpipe");
}

TEST_F(CsvPanelTest, UnfinishedTextGoesWithTheModelThatItWasTypedFor) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/gpt_small.pt2"}, {}));
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(panel.problem().isEmpty());
  EXPECT_EQ(text->toPlainText().count(QLatin1Char('\n')), document.design().request.ranks - 1);
}

TEST_F(CsvPanelTest, AScheduleWithoutAModelMayGetMoreStages) {
  const test::Folder folder;
  document.adopt(*loadFiles({folder.with("mine.csv", "0F0,0B0\r\n1F0,1B0\r\n")}, {}));
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->makespan, 6'000'000) << "1 + 1 + 2 + 2 ms";
  text->setPlainText("0F0,0B0\n1F0,1B0\n2F0,2B0");
  ASSERT_TRUE(QTest::qWaitFor([&] { return drawnOf(document.design()) != nullptr; }, 60'000));
  ASSERT_TRUE(predicted());
  EXPECT_TRUE(document.problem().isEmpty()) << document.problem().toStdString();
  EXPECT_EQ(document.prediction()->makespan, 9'000'000) << "1 + 1 + 1 + 2 + 2 + 2 ms";
}

using UseSchedule = WindowFixture;

TEST_F(UseSchedule, OfACsvForTheOpenModelKeepsTheModel) {
  open(sample("gpt_small.pt2"));
  Schedule mine = parseCsv("0F0,0F1,0F2,0B0,0B1,0B2\r\n1F0,1B0,1F1,1B1,1F2,1B2\r\n", "mine", "the test");
  window_->useSchedule(mine);
  ASSERT_TRUE(settle());
  EXPECT_NE(document().graph(), nullptr);
  EXPECT_EQ(document().design().request.schedule, "mine");
  EXPECT_EQ(document().design().request.ranks, 2);
  EXPECT_EQ(document().design().request.begins.size(), 1U);
  EXPECT_TRUE(document().problem().isEmpty()) << document().problem().toStdString();
  window_->useSchedule(mine);
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design().request.schedule, "mine 2") << "a name has one schedule";
}

}  // namespace
}  // namespace pw::gui
