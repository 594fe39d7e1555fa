// The figures of a plan: of which plan they are, and what they mean.
#include "app/gui/plan/results.h"

#include <gtest/gtest.h>

#include <QLabel>
#include <QTest>
#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "app/gui/document/document.h"
#include "app/gui/document/loading.h"
#include "app/gui/plan/panel.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

class PlanResultsTest : public testing::Test {
 protected:
  void SetUp() override {
    document.adopt(*loadFiles({kGpt}, {}));
    settle();
    ASSERT_NE(document.prediction(), nullptr);
  }
  void settle() {
    ASSERT_TRUE(QTest::qWaitFor([this] { return !document.isPredicting() && panel.isIdle(); }, kLongMs));
  }
  void change(const std::function<void(PlanRequest&)>& change) {
    document.edit("change", [&](Design& design) { change(design.request); });
    settle();
  }
  /// By name, the values that are shown.
  std::map<std::string, std::string> figures() {
    std::map<std::string, std::string> all;
    for (const auto* label : panel.findChild<PlanResults*>()->findChildren<QLabel*>()) {
      if (!label->isHidden() && label->accessibleName() != "Problem" && !label->accessibleName().isEmpty())
        all[label->accessibleName().toStdString()] = label->text().toStdString();
    }
    return all;
  }

  Document document;
  PlanPanel panel{document};
};

TEST_F(PlanResultsTest, OfAScheduleWithoutAModelNoRunsCanTell) {
  EXPECT_EQ(figures()["Prediction error so far"], "no runs from such times yet");
  const test::Folder folder;
  document.adopt(*loadFiles({folder.with("order.csv", "0F0,0F1,0B0,0B1\n")}, {}));
  settle();
  EXPECT_EQ(figures()["Prediction error so far"], "–");
}

TEST_F(PlanResultsTest, OfARefusedCombinationAllStayAsTheyWere) {
  const auto before = figures();
  ASSERT_TRUE(before.contains("Samples/s"));
  ASSERT_TRUE(before.contains("MFU"));
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(figures(), before);
  change([](PlanRequest& r) {
    r.ranks = 3;
    r.microbatch *= 2;
    r.replicas = 2;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  EXPECT_EQ(figures(), before) << "also where the model is estimated anew";
}

TEST_F(PlanResultsTest, OfAPlanThatIsPossibleAgainAllAreNew) {
  const std::string before = figures()["Samples/s"];
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_FALSE(document.problem().isEmpty());
  change([](PlanRequest& r) {
    r.schedule = "1f1b";
    r.microbatches = 32;
  });
  ASSERT_TRUE(document.problem().isEmpty()) << document.problem().toStdString();
  EXPECT_NE(figures()["Samples/s"], before);
}

TEST_F(PlanResultsTest, AProblemBeginsAsASentence) {
  change([](PlanRequest& r) {
    r.schedule = "dualpipe";
    r.microbatches = 3;
  });
  ASSERT_TRUE(document.problem().startsWith("schedule")) << document.problem().toStdString();
  const auto labels = panel.findChildren<QLabel*>();
  const auto problem = std::ranges::find(labels, "Problem", [](const QLabel* label) { return label->accessibleName(); });
  ASSERT_NE(problem, labels.end());
  EXPECT_TRUE((*problem)->text().startsWith("Schedule")) << (*problem)->text().toStdString();
}

TEST_F(PlanResultsTest, EachNameSaysWhatItMeansAsItsValueDoes) {
  int names = 0;
  for (const auto* label : panel.findChildren<QLabel*>()) {
    const bool isName = label->accessibleName().isEmpty() && !label->text().isEmpty() && !label->isHidden();
    if (!isName) continue;
    ++names;
    EXPECT_FALSE(label->toolTip().isEmpty()) << label->text().toStdString();
  }
  EXPECT_GT(names, 15);
}

}  // namespace
}  // namespace pw::gui
