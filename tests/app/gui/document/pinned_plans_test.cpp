#include "app/gui/document/pinned_plans.h"

#include <gtest/gtest.h>

#include <QSignalSpy>
#include <QTest>

#include "app/gui/document/loading.h"

namespace pw::gui {
namespace {

constexpr int kLongMs = 60'000;
const char* const kGpt = PW_SOURCE_DIR "/resources/models/gpt_small.pt2";

struct PinnedPlansTest : testing::Test {
  void SetUp() override {
    document.adopt(*loadFiles({kGpt}, {}));
    ASSERT_TRUE(predicted());
  }
  bool predicted() {
    return QTest::qWaitFor([this] { return !document.isPredicting(); }, kLongMs);
  }
  bool choose(const std::string& schedule) {
    document.edit("Choose a schedule", [&](Design& d) { d.request.schedule = schedule; });
    return predicted();
  }
  Document document;
  PinnedPlans pins{document};
};

TEST_F(PinnedPlansTest, KeepAPlanAndItsStepWhileTheDocumentGoesOn) {
  const Design first = document.design();
  const auto prediction = document.prediction();
  pins.pin();
  ASSERT_TRUE(choose("gpipe"));
  pins.pin();
  ASSERT_EQ(pins.plans().size(), 2U);
  EXPECT_EQ(pins.plans()[0].name, "A");
  EXPECT_EQ(pins.plans()[0].design, first);
  EXPECT_EQ(pins.plans()[0].step->trace, traceOf(*prediction));
  EXPECT_EQ(pins.plans()[1].name, "B");
  EXPECT_TRUE(pins.plans()[1].title().startsWith("B: gpipe, 4 ranks, 8 microbatches, ")) << pins.plans()[1].title().toStdString();
}

TEST_F(PinnedPlansTest, AreShownBesideThePredictionUntilUnpinned) {
  pins.pin();
  ASSERT_TRUE(choose("gpipe"));
  EXPECT_EQ(pins.compared(), nullptr);
  pins.compareWith(0);
  EXPECT_EQ(document.measured(), pins.plans()[0].step);
  EXPECT_EQ(pins.compared(), &pins.plans()[0]);
  ASSERT_TRUE(choose("zb-h1"));
  EXPECT_EQ(pins.compared(), &pins.plans()[0]) << "the comparison follows the edits";
  pins.unpin(0);
  EXPECT_EQ(document.measured(), nullptr);
  EXPECT_TRUE(pins.plans().empty());
}

TEST_F(PinnedPlansTest, AreGoneBackToInOneStepOfUndo) {
  const Design first = document.design();
  const Ns step = document.prediction()->step;
  pins.pin();
  ASSERT_TRUE(choose("gpipe"));
  const Design second = document.design();
  pins.goBackTo(0);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design(), first);
  EXPECT_EQ(document.prediction()->step, step);
  document.undo();
  EXPECT_EQ(document.design(), second);
}

TEST_F(PinnedPlansTest, TakeTheFirstFreeNameAndAreAtMostNine) {
  for (int i = 0; i < 9; ++i) pins.pin();
  pins.unpin(1);
  pins.pin();
  EXPECT_EQ(pins.plans()[1].name, "B");
  const QSignalSpy refused(&pins, &PinnedPlans::refused);
  pins.pin();
  EXPECT_EQ(refused.count(), 1);
  EXPECT_EQ(pins.plans().size(), 9U);
}

TEST_F(PinnedPlansTest, CountOneRankAndOneMicrobatchAsOne) {
  document.edit("One of each", [](Design& d) { d.request.ranks = d.request.microbatches = 1; });
  ASSERT_TRUE(predicted());
  pins.pin();
  ASSERT_EQ(pins.plans().size(), 1U);
  EXPECT_TRUE(pins.plans()[0].title().startsWith("A: 1f1b, 1 rank, 1 microbatch, ")) << pins.plans()[0].title().toStdString();
}

TEST_F(PinnedPlansTest, GoWithTheirModel) {
  pins.pin();
  document.adopt(*loadFiles({PW_SOURCE_DIR "/resources/models/vit_small.pt2"}, {}));
  EXPECT_TRUE(pins.plans().empty());
  const QSignalSpy refused(&pins, &PinnedPlans::refused);
  pins.pin();
  EXPECT_EQ(refused.count(), 1) << "there is no prediction yet";
}

}  // namespace
}  // namespace pw::gui
