// The command palette: how letters find commands, and that Enter, a click and Esc do what they say.
#include "app/gui/window/command_palette.h"

#include <gtest/gtest.h>

#include <QLineEdit>
#include <QListWidget>
#include <QTest>

#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

TEST(CommandFit, NeedsEveryLetterInOrderWhateverItsCase) {
  EXPECT_EQ(fit("", "Save"), 0);
  EXPECT_GT(fit("SV", "Save"), 0);
  EXPECT_EQ(fit("vs", "Save"), -1);
  EXPECT_EQ(fit("saved", "Save"), -1);
  EXPECT_EQ(fit("s v", "Save"), fit("sv", "Save")) << "blanks do not count";
}

TEST(CommandFit, PrefersLettersThatFollowEachOtherAndBeginWords) {
  EXPECT_GT(fit("run", "Run the plan"), fit("run", "Recover unfinished notes"));
  EXPECT_GT(fit("sp", "Save project"), fit("sp", "Stop"));
  EXPECT_GT(fit("memo", "Timeline: Show memory"), fit("memo", "Move to model")) << "the first m need not be the one";
  EXPECT_EQ(fit("memo", "Timeline: Show memory"), fit("memo", "Show memory"));
}

class CommandPaletteTest : public testing::Test {
 protected:
  void SetUp() override {
    window.resize(800, 600);
    window.show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(&window));
    const auto command = [this](const QString& text, const QString& key = {}) {
      return Command{text, key, [this, text] { done << text; }};
    };
    palette = new CommandPalette({command("Save project", "Ctrl+S"), command("Run the plan"), command("Schedule: zbv")}, &window);
    palette->show();
    typed = palette->findChild<QLineEdit*>();
    list = palette->findChild<QListWidget*>();
    ASSERT_TRUE(typed != nullptr && list != nullptr);
  }
  [[nodiscard]] QStringList shown() const {
    QStringList texts;
    for (int row = 0; row < list->count(); ++row) texts << list->item(row)->text();
    return texts;
  }

  QWidget window;
  CommandPalette* palette = nullptr;  // of the window
  QLineEdit* typed = nullptr;
  QListWidget* list = nullptr;
  QStringList done;
};

TEST_F(CommandPaletteTest, ListsAllCommandsWithTheirKeysBeforeAnythingIsTyped) {
  EXPECT_EQ(shown(), (QStringList{"Save project    Ctrl+S", "Run the plan", "Schedule: zbv"}));
}

TEST_F(CommandPaletteTest, EnterDoesTheBestMatchAndClosesIt) {
  QTest::keyClicks(typed, "zb");
  EXPECT_EQ(shown(), QStringList{"Schedule: zbv"});
  QTest::keyClick(typed, Qt::Key_Return);
  EXPECT_EQ(done, QStringList{"Schedule: zbv"});
  EXPECT_FALSE(palette->isVisible());
}

TEST_F(CommandPaletteTest, ArrowKeysChooseAndStopAtTheEnds) {
  QTest::keyClick(typed, Qt::Key_Up);
  EXPECT_EQ(list->currentRow(), 0);
  QTest::keyClick(typed, Qt::Key_Down);
  EXPECT_EQ(list->currentRow(), 1);
  QTest::keyClick(typed, Qt::Key_PageDown);
  EXPECT_EQ(list->currentRow(), 2);
  QTest::keyClick(typed, Qt::Key_Down);
  EXPECT_EQ(list->currentRow(), 2);
  QTest::keyClick(typed, Qt::Key_PageUp);
  QTest::keyClick(typed, Qt::Key_Down);
  QTest::keyClick(typed, Qt::Key_Enter);
  EXPECT_EQ(done, QStringList{"Run the plan"});
}

TEST_F(CommandPaletteTest, AClickDoesACommand) {
  QTest::mouseClick(list->viewport(), Qt::LeftButton, {}, list->visualItemRect(list->item(1)).center());
  EXPECT_EQ(done, QStringList{"Run the plan"});
  EXPECT_FALSE(palette->isVisible());
}

TEST_F(CommandPaletteTest, WhereNothingMatchesEnterDoesNothing) {
  QTest::keyClicks(typed, "qqq");
  EXPECT_EQ(shown(), QStringList{"No matching command."});
  QTest::keyClick(typed, Qt::Key_Return);
  EXPECT_TRUE(done.isEmpty());
  EXPECT_TRUE(palette->isVisible());
}

TEST_F(CommandPaletteTest, EscClosesItAndDoesNothing) {
  QTest::keyClick(typed, Qt::Key_Escape);
  EXPECT_FALSE(palette->isVisible());
  EXPECT_TRUE(done.isEmpty());
}

struct PaletteOfTheWindow : WindowFixture {};

TEST_F(PaletteOfTheWindow, ChoosesAScheduleOfTheModelThatIsOpen) {
  window_->showCommandPalette();
  auto* palette = window_->findChild<CommandPalette*>();
  ASSERT_NE(palette, nullptr);
  EXPECT_TRUE(palette->findChild<QListWidget*>()->findItems("Schedule:", Qt::MatchStartsWith).isEmpty()) << "no model is open";
  QTest::keyClick(palette->findChild<QLineEdit*>(), Qt::Key_Escape);
  open(sample("gpt_small.pt2"));
  QCoreApplication::sendPostedEvents(nullptr, QEvent::DeferredDelete);
  window_->showCommandPalette();
  palette = window_->findChild<CommandPalette*>();
  ASSERT_NE(palette, nullptr);
  auto* typed = palette->findChild<QLineEdit*>();
  QTest::keyClicks(typed, "schedule: gpipe");
  QTest::keyClick(typed, Qt::Key_Return);
  EXPECT_EQ(document().design().request.schedule, "gpipe");
  EXPECT_EQ(document().undoText(), "Choose schedule gpipe");
}

TEST_F(PaletteOfTheWindow, OffersWhatCanBeDoneWithPinnedPlans) {
  open(sample("gpt_small.pt2"));
  const Design pinned = document().design();
  QTest::keyClick(window_.get(), Qt::Key_I, Qt::ControlModifier);
  document().edit("gpipe", [](Design& design) { design.request.schedule = "gpipe"; });
  ASSERT_TRUE(settle());
  window_->showCommandPalette();
  auto* typed = window_->findChild<CommandPalette*>()->findChild<QLineEdit*>();
  QTest::keyClicks(typed, "pinned go back");
  QTest::keyClick(typed, Qt::Key_Return);
  EXPECT_EQ(document().design(), pinned);
}

}  // namespace
}  // namespace pw::gui
