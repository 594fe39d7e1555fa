// Where a model is planned first, and what is offered instead.
#include <QFile>
#include <QMenu>
#include <QPushButton>
#include <QSettings>
#include <algorithm>

#include "app/gui/plan/panel.h"
#include "app/gui/window/message_bar.h"
#include "backends/resources/resources.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

class FirstCluster : public WindowFixture {
 protected:
  void SetUp() override {
    WindowFixture::SetUp();
    window_ = std::make_unique<MainWindow>(true);  // as people start it: with what was used last
    window_->document().setStorePath(folder_.filePath("runs.db"));
    window_->show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
  }
  void TearDown() override {
    window_.reset();
    QSettings().remove(QStringLiteral("cluster"));
  }
  [[nodiscard]] QPushButton& offer() const {
    const auto buttons = window_->findChild<MessageBar*>()->findChildren<QPushButton*>();
    const auto found = std::ranges::find(buttons, "&Other clusters", [](const QPushButton* b) { return b->text(); });
    if (found == buttons.end()) throw std::logic_error("nothing is offered");
    return **found;
  }
};

TEST_F(FirstCluster, OthersThatHoldTheModelAreOneClickAway) {
  Cluster small = loadCluster("l4-pcie");
  small.name = "mine";
  small.memoryBytes = 1'000;
  QSettings().setValue(QStringLiteral("cluster"), QString::fromStdString(toJson(small)));
  open(sample("gpt_small.pt2"));
  ASSERT_EQ(document().design().cluster, "cpu-workstation") << "the one used last is too small";
  const int ranks = document().design().request.ranks;
  ASSERT_TRUE(window_->message().contains("Planned for")) << window_->message().toStdString();
  ASSERT_TRUE(offer().isVisible());
  const auto choices = offer().menu()->actions();
  const auto other = std::ranges::find(choices, "h100-nvlink", [](const QAction* action) { return action->text(); });
  ASSERT_NE(other, choices.end());
  EXPECT_TRUE(std::ranges::none_of(choices, [](const QAction* action) { return action->text() == "cpu-workstation"; }));
  (*other)->trigger();
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design().cluster, "h100-nvlink");
  EXPECT_EQ(document().design().request.ranks, ranks);
  EXPECT_EQ(document().problem(), "");
  EXPECT_TRUE(window_->message().isEmpty()) << "what it said is no longer so";
  window_->showNote("Something else.");
  EXPECT_FALSE(offer().isVisible());
}

const QString kRack = QStringLiteral(PW_SOURCE_DIR "/resources/examples/mixed_rack.json");

TEST_F(FirstCluster, WhatIsOpenedBesideAClusterIsPlannedForIt) {
  window_->open({sample("gpt_small.pt2"), kRack});
  ASSERT_TRUE(settle());
  EXPECT_EQ(window_->message(), "");
  ASSERT_EQ(document().design().cluster, kRack.toStdString());
  const std::vector<NodeId> balanced = document().design().request.begins;
  window_->open({sample("gpt_small.pt2")});
  ASSERT_TRUE(settle());
  EXPECT_NE(document().design().request.begins, balanced) << "one of the rack's ranks is slow";
  open(kRack);  // of splits that nobody chose
  EXPECT_EQ(document().design().request.begins, balanced);
  document().undo();
  ASSERT_TRUE(settle());
  document().edit("Move split", [&](Design& d) { d.request.begins[0] = document().splitPoints()[0].begin; });
  ASSERT_TRUE(settle());
  const std::vector<NodeId> chosen = document().design().request.begins;
  window_->findChild<PlanPanel*>()->useCluster(kRack.toStdString());
  ASSERT_TRUE(settle());
  EXPECT_EQ(document().design().request.begins, chosen) << "those stay that somebody chose";
}

TEST_F(FirstCluster, UsedLastIsThatOfTheNextStart) {
  const QString key = QStringLiteral("cluster");
  window_.reset();
  QSettings().setValue(key, "h100-nvlink");
  window_ = std::make_unique<MainWindow>(true);
  window_->document().setStorePath(folder_.filePath("runs.db"));
  window_->show();
  ASSERT_TRUE(QTest::qWaitForWindowExposed(window_.get()));
  EXPECT_EQ(QSettings().value(key), "h100-nvlink");
  open(sample("gpt_small.pt2"));
  EXPECT_EQ(document().design().cluster, "h100-nvlink");
}

TEST_F(FirstCluster, AClusterThatCannotBeReadIsRefusedBesideAModelToo) {
  QFile file(folder_.filePath("rack.json"));
  ASSERT_TRUE(file.open(QIODevice::WriteOnly));
  QFile rack(kRack);
  ASSERT_TRUE(rack.open(QIODevice::ReadOnly));
  file.write(rack.readAll().replace("\"ranks\":", "\"rank\":"));
  file.close();
  window_->open({sample("gpt_small.pt2"), file.fileName()});
  ASSERT_TRUE(settle());
  EXPECT_TRUE(window_->message().contains("has the unknown member rank")) << window_->message().toStdString();
  EXPECT_EQ(document().graph(), nullptr);
}

TEST_F(FirstCluster, ThatWasUndoneIsNotRemembered) {
  const QString key = QStringLiteral("cluster");
  open(sample("gpt_small.pt2"));
  const QVariant before = QSettings().value(key);
  document().edit("Choose cluster", [](Design& d) { d.cluster = "h100-nvlink"; });
  ASSERT_TRUE(settle());
  EXPECT_EQ(QSettings().value(key), "h100-nvlink");
  document().edit("Choose cluster", [](Design& d) { d.cluster = "l4-pcie"; });
  ASSERT_TRUE(settle());
  document().undo();
  ASSERT_TRUE(settle());
  EXPECT_EQ(QSettings().value(key), "h100-nvlink");
  document().undo();
  ASSERT_TRUE(settle());
  EXPECT_EQ(QSettings().value(key), before);
}

}  // namespace
}  // namespace pw::gui
