#include "app/gui/document/pinned_plans.h"

#include <gtest/gtest.h>

#include <QSignalSpy>
#include <QTest>

#include "app/gui/document/drawn.h"
#include "app/gui/document/loading.h"
#include "app/gui/document/project.h"
#include "backends/store/trace_blob.h"
#include "tests/app/gui/constants.h"
#include "tests/support/folder.h"

namespace pw::gui {
namespace {

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
  /// Chooses the schedule and makes its order one that is edited by hand.
  void draw(const std::string& schedule) {
    ASSERT_TRUE(choose(schedule));
    swapFirst();
  }
  /// Swaps two forwards of the shown order's first rank.
  void swapFirst() {
    Schedule shown = std::get<Schedule>(editableSchedule(document));
    std::swap(shown.rows[0][1], shown.rows[0][2]);
    setDrawn(document, "Swap", std::move(shown));
    ASSERT_TRUE(predicted());
  }
  [[nodiscard]] std::vector<std::string> drawnNames() const {
    std::vector<std::string> names;
    for (const auto& drawn : document.design().drawn) names.push_back(drawn->name);
    return names;
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

TEST_F(PinnedPlansTest, ComeBackAfterTheyWereUnpinned) {
  pins.pin();
  const auto step = pins.plans()[0].step;
  EXPECT_EQ(pins.unpinned(), nullptr);
  pins.unpin(0);
  ASSERT_NE(pins.unpinned(), nullptr);
  pins.pinAgain();
  ASSERT_EQ(pins.plans().size(), 1U);
  EXPECT_EQ(pins.plans()[0].step, step);
  EXPECT_EQ(pins.unpinned(), nullptr);
  pins.unpin(0);
  pins.pin();  // takes the name
  pins.pinAgain();
  ASSERT_EQ(pins.plans().size(), 2U);
  EXPECT_EQ(pins.plans()[1].name, "B");
  EXPECT_EQ(pins.plans()[1].step->pinnedAs, "B");
  EXPECT_EQ(pins.plans()[1].step->trace, step->trace);
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

TEST_F(PinnedPlansTest, GoingBackKeepsSchedulesDrawnSinceAndNotes) {
  draw("1f1b");
  pins.pin();
  draw("gpipe");
  ASSERT_TRUE(addNote(document, {"why so late?", 1000, {}}));
  pins.goBackTo(0);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design().request.schedule, "1f1b, edited");
  EXPECT_EQ(drawnNames(), (std::vector<std::string>{"1f1b, edited", "gpipe, edited"}));
  EXPECT_EQ(document.design().notes.size(), 1U);
}

TEST_F(PinnedPlansTest, GoingBackAndForthKeepsEachStateOfADrawnScheduleOnce) {
  draw("1f1b");
  pins.pin();
  const Schedule first = *document.design().drawn[0];
  swapFirst();
  pins.pin();
  const Schedule second = *document.design().drawn[0];
  ASSERT_NE(first, second);
  for (int i = 0; i < 3; ++i) {
    pins.compare(0, 1);
    ASSERT_TRUE(predicted());
    EXPECT_EQ(*drawnOf(document.design()), first);
    EXPECT_EQ(drawnNames(), (std::vector<std::string>{"1f1b, edited", "1f1b, edited 2"}));
    EXPECT_EQ(drawnNamed(document.design(), "1f1b, edited 2")->rows, second.rows) << "what was drawn after the plan was pinned";
    pins.compare(1, 0);
    ASSERT_TRUE(predicted());
    EXPECT_EQ(*drawnOf(document.design()), second);
    EXPECT_EQ(drawnNames(), (std::vector<std::string>{"1f1b, edited", "1f1b, edited 2"}));
    EXPECT_EQ(drawnNamed(document.design(), "1f1b, edited 2")->rows, first.rows);
  }
}

TEST_F(PinnedPlansTest, TwoAreComparedWithEachOther) {
  pins.pin();
  ASSERT_TRUE(choose("gpipe"));
  pins.pin();
  ASSERT_TRUE(choose("zb-h1"));
  pins.compare(0, 1);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.design(), pins.plans()[0].design);
  EXPECT_EQ(document.measured(), pins.plans()[1].step) << "below it";
  document.undo();
  EXPECT_EQ(document.design().request.schedule, "zb-h1") << "one step";
}

TEST_F(PinnedPlansTest, AreKeptInProjects) {
  document.edit("measured times", [this](Design& d) { d.profile = document.profile(); });
  ASSERT_TRUE(predicted());
  pins.pin();
  document.edit("estimated", [](Design& d) { d.profile.reset(), d.cluster = "h100-nvlink", d.request.schedule = "gpipe"; });
  ASSERT_TRUE(predicted());
  pins.pin();
  document.edit("again", [this](Design& d) { d.profile = pins.plans()[0].design.profile, d.request.schedule = "zb-h1"; });
  ASSERT_TRUE(predicted());
  const test::Folder folder;
  const std::string path = folder.with("pinned.pwproj", toJson(Project{document.design(), {}, {}, pins.plans()}));
  const std::vector<PinnedPlan> before = pins.plans();
  const auto loaded = loadFiles({path}, {});
  EXPECT_TRUE(loaded->notes.empty()) << loaded->notes.join(' ').toStdString();
  document.adopt(*loaded);
  pins.restore(loaded->pins);
  ASSERT_TRUE(predicted());
  ASSERT_EQ(pins.plans().size(), 2U);
  for (std::size_t i = 0; i < 2; ++i) {
    const PinnedPlan &then = before[i], &now = pins.plans()[i];
    EXPECT_EQ(now.name, then.name);
    EXPECT_EQ(now.title(), then.title());
    EXPECT_EQ(now.step->trace, then.step->trace);
    EXPECT_EQ(now.design.request, then.design.request);
    EXPECT_EQ(now.design.cluster, then.design.cluster);
  }
  EXPECT_EQ(pins.plans()[0].design.profile, document.design().profile) << "kept once";
  EXPECT_EQ(pins.plans()[1].design.profile, nullptr);
  const Ns step = durationOf(pins.plans()[1].step->trace);
  pins.goBackTo(1);
  ASSERT_TRUE(predicted());
  EXPECT_EQ(document.prediction()->step, step) << "of the same plan";
}

TEST_F(PinnedPlansTest, AreUnsavedWorkAlsoOfAPlanThatWasNeverSaved) {
  ASSERT_TRUE(choose("gpipe"));
  pins.pin();
  document.undo();
  EXPECT_TRUE(document.isModified()) << "a pinned plan is not taken back by undo, and would be lost";
}

TEST_F(PinnedPlansTest, MakeASavedProjectDifferFromItsFile) {
  document.setProjectPath("saved.pwproj");
  document.markSaved();
  pins.pin();
  EXPECT_TRUE(document.isModified());
  document.markSaved();
  pins.unpin(0);
  EXPECT_TRUE(document.isModified());
}

TEST_F(PinnedPlansTest, AreLeftOutOfAProjectWhoseModelChanged) {
  pins.pin();
  Design other = document.design();
  other.models = {PW_SOURCE_DIR "/resources/models/vit_small.pt2"};
  other.request.begins.clear();
  const test::Folder folder;
  const auto loaded = loadFiles({folder.with("other.pwproj", toJson(Project{other, {}, {}, pins.plans()}))}, {});
  EXPECT_TRUE(loaded->pins.empty());
  EXPECT_TRUE(loaded->notes.join(' ').contains("Pinned plans A are of another model")) << loaded->notes.join(' ').toStdString();
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

TEST_F(PinnedPlansTest, GoWithTheirScheduleWhereThereIsNoModel) {
  const test::Folder folder;
  const std::string one = folder.with("one.csv", "0F0,0F1,0B0,0B1\n"), other = folder.with("other.csv", "0F0,0B0,0F1,0B1\n");
  document.adopt(*loadFiles({one}, {}));
  ASSERT_TRUE(predicted());
  pins.pin();
  ASSERT_EQ(pins.plans().size(), 1U);
  document.adopt(*loadFiles({other}, {}));
  EXPECT_TRUE(pins.plans().empty());
}

}  // namespace
}  // namespace pw::gui
