// Where a model is planned first, and what is offered instead.
#include <QMenu>
#include <QPushButton>
#include <QSettings>
#include <algorithm>

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

}  // namespace
}  // namespace pw::gui
