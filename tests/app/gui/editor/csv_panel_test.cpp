#include "app/gui/editor/csv_panel.h"

#include <gmock/gmock.h>

#include <QLabel>
#include <QPlainTextEdit>

#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
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

TEST_F(CsvPanelTest, KeepsWhatIsNotRightYetWhileThePlanChangesOtherwise) {
  text->setPlainText("0F0,0F1,0B0,0B1\n1F0,1B");
  ASSERT_TRUE(QTest::qWaitFor([&] { return !panel.problem().isEmpty(); }, 60'000));
  document.edit("Limit", [](Design& d) { d.request.memoryLimit = 1 << 30; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1B");
  document.edit("gpipe", [](Design& d) { d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  EXPECT_EQ(text->toPlainText().toStdString(), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1") << "another schedule is shown";
  EXPECT_TRUE(panel.problem().isEmpty());
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
