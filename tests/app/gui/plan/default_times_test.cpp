// The times of a schedule's file, which has none: set in the plan, kept in a project, taken back.
#include <gtest/gtest.h>

#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QTest>

#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/pinned_plans.h"
#include "app/gui/document/project.h"
#include "app/gui/plan/panel.h"
#include "schedules/csv.h"
#include "schedules/error.h"
#include "schedules/generate.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

constexpr Ns kMs{1'000'000};

class DefaultTimesTest : public testing::Test {
 protected:
  void SetUp() override { panel.show(); }
  void open(const std::string& path) {
    document.adopt(*loadFiles({path}, {}));
    await();
  }
  void await() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && panel.isIdle(); }, kLongMs));
    ASSERT_NE(document.prediction(), nullptr) << document.problem().toStdString();
  }
  [[nodiscard]] QLineEdit& field(const char* kind) const {
    for (auto* edit : panel.findChildren<QLineEdit*>()) {
      if (edit->accessibleName() == QLatin1String("Time of ") + QLatin1String(kind)) return *edit;
    }
    throw std::logic_error(kind);
  }
  void type(const char* kind, const char* text) {
    QLineEdit& edit = field(kind);
    edit.setFocus();
    edit.selectAll();
    QTest::keyClicks(&edit, QString::fromUtf8(text));
    QTest::keyClick(&edit, Qt::Key_Return);
    await();
  }
  [[nodiscard]] QString problem() const {
    for (const auto* label : panel.findChildren<QLabel*>()) {
      if (label->accessibleName() == QLatin1String("Problem")) return label->text();
    }
    return {};
  }
  [[nodiscard]] std::string save() const {
    Project project;
    project.design = document.design();
    return toJson(project);
  }

  test::Folder folder;
  const std::string csv = folder.with("order.csv", toCsv(generate("1f1b", {2, 2, 4})));
  Document document;
  PlanPanel panel{document};
};

TEST_F(DefaultTimesTest, EachKindOfActionHasAFieldAndBubbleAndMakespanFollow) {
  open(csv);
  EXPECT_TRUE(field("Forward (F)").isVisible());
  EXPECT_TRUE(field("Backward (B)").isVisible());
  EXPECT_FALSE(field("Input gradient (I)").isVisible()) << "the schedule has none";
  EXPECT_EQ(field("Backward (B)").text(), "2 ms");
  // (M + R − 1) · (F + B)
  EXPECT_EQ(document.prediction()->makespan, 5 * 3 * kMs);
  type("Backward (B)", "3.25 ms");
  EXPECT_EQ(document.prediction()->makespan, Ns(5 * 4'250'000));
  EXPECT_EQ(document.undoText(), "Change the time of Backward (B)");
  document.undo();
  await();
  EXPECT_EQ(document.prediction()->makespan, 5 * 3 * kMs);
  EXPECT_EQ(field("Backward (B)").text(), "2 ms") << "also while it has the focus";
}

TEST_F(DefaultTimesTest, OfASplitBackwardThereIsAFieldForEachPart) {
  open(folder.with("zb.csv", toCsv(generate("zb-h1", {2, 2, 4}))));
  EXPECT_TRUE(field("Input gradient (I)").isVisible());
  EXPECT_TRUE(field("Weight gradient (W)").isVisible());
  const Ns before = document.prediction()->makespan;
  type("Weight gradient (W)", "1 ns");
  EXPECT_LT(document.prediction()->makespan, before);
}

TEST_F(DefaultTimesTest, WhatIsNoTimeChangesNothing) {
  open(csv);
  for (const char* text : {"0 ms", "2", "-1 ms", "much", "1e30 s"}) {
    type("Forward (F)", text);
    EXPECT_EQ(field("Forward (F)").text(), "1 ms") << text;
    EXPECT_TRUE(document.undoText().isEmpty()) << text;
  }
}

TEST_F(DefaultTimesTest, TheLongestIsSavedAndOpenedAndALongerOneIsRefusedWithTheReason) {
  open(csv);
  type("Forward (F)", "1000 s");
  EXPECT_EQ(document.design().defaultTimes->forward, 1'000'000 * kMs);
  open(folder.with("long.pwproj", save()));
  EXPECT_EQ(field("Forward (F)").text(), "1000 s");
  type("Forward (F)", "2000 s");
  EXPECT_EQ(field("Forward (F)").text(), "1000 s");
  EXPECT_TRUE(problem().contains("at most 1000 s")) << problem().toStdString();
}

TEST_F(DefaultTimesTest, AModelsTimesAreItsOwn) {
  open(kGpt);
  for (const char* kind : {"Forward (F)", "Backward (B)", "Input gradient (I)", "Weight gradient (W)"})
    EXPECT_FALSE(field(kind).isVisible()) << kind;
}

TEST_F(DefaultTimesTest, AProjectKeepsThemAndThoseOfPinnedPlans) {
  open(csv);
  PinnedPlans pins(document);
  type("Forward (F)", "1.5 ms");
  pins.pin();
  type("Forward (F)", "4 ms");
  Project project;
  project.design = document.design();
  project.pins = pins.plans();
  const std::string path = folder.with("a.pwproj", toJson(project));
  const Ns makespan = document.prediction()->makespan;
  const auto loaded = loadFiles({path}, {});
  ASSERT_EQ(loaded->pins.size(), 1U);
  EXPECT_TRUE(loaded->notes.isEmpty()) << loaded->notes.front().toStdString();
  EXPECT_EQ(loaded->pins.front().design.customCosts->stages.front().forward, Ns(1'500'000));
  open(path);
  EXPECT_EQ(document.prediction()->makespan, makespan);
  EXPECT_EQ(field("Forward (F)").text(), "4 ms");
}

TEST_F(DefaultTimesTest, AProjectThatSaysNothingOfThemHasTheUsualOnesAndOneOfNonsenseIsRefused) {
  open(csv);
  const std::string usual = save();
  EXPECT_EQ(usual.find("default_times"), std::string::npos);
  open(folder.with("usual.pwproj", usual));
  EXPECT_EQ(document.design().defaultTimes, DefaultTimes());
  EXPECT_EQ(field("Forward (F)").text(), "1 ms");
  type("Forward (F)", "4 ms");
  std::string text = save();
  const auto at = text.find("4000000");
  ASSERT_NE(at, std::string::npos);
  EXPECT_THROW((void)parseProject(text.replace(at, 7, "-400000"), "a.pwproj"), UsageError);
}

TEST_F(DefaultTimesTest, ADrawnScheduleOfOtherStagesKeepsThem) {
  open(csv);
  type("Forward (F)", "4 ms");
  addDrawn(document, "Add", generate("1f1b", {3, 3, 4}));
  await();
  ASSERT_EQ(document.design().customCosts->stages.size(), 3U);
  EXPECT_EQ(document.design().customCosts->stages.back().forward, 4 * kMs);
  open(folder.with("b.pwproj", save()));
  EXPECT_EQ(document.design().customCosts->stages.size(), 3U);
  EXPECT_EQ(document.design().customCosts->stages.back().forward, 4 * kMs);
}

}  // namespace
}  // namespace pw::gui
