// Alt and a letter open a menu, whatever is in front, and choose one thing in it.
#include <QAbstractButton>
#include <QAction>
#include <QDockWidget>
#include <QLabel>
#include <QMenu>
#include <QMenuBar>
#include <QPushButton>
#include <QScrollBar>
#include <QStatusBar>
#include <QTableWidget>
#include <QToolBar>
#include <QToolButton>
#include <algorithm>

#include "app/gui/timeline/hand_edit.h"
#include "app/gui/window/keys_dialog.h"
#include "app/gui/window/message_bar.h"
#include "schedules/named_values.h"
#include "tests/app/gui/next_turn.h"
#include "tests/app/gui/window_fixture.h"

namespace pw::gui {
namespace {

const QString kPrimus = QStringLiteral(PW_SOURCE_DIR "/tests/data/primus/pp8");

/// The letter after the `&`; a null character where there is none.
QChar letterOf(const QString& text) {
  const QKeySequence keys = QKeySequence::mnemonic(text);
  return keys.isEmpty() ? QChar() : QChar(static_cast<char16_t>(keys[0].key()));
}

class MenusTest : public WindowFixture {
 protected:
  /// With each panel in front, each menu opens by its letter.
  void expectLettersOpenMenus() {
    for (const Panel panel : {Panel::Candidates, Panel::Runs, Panel::Analysis, Panel::Explain, Panel::Schedule, Panel::Statistics,
                              Panel::Notes, Panel::Model, Panel::Plan}) {
      window_->showPanel(panel);
      ASSERT_TRUE(settle());
      waitForNextTurn();  // the panel's own menus and letters are there
      for (const QAction* title : window_->menuBar()->actions()) expectOpens(*title, std::string(nameOf(panel)));
    }
  }
  void expectOpens(const QAction& title, const std::string& inFront) {
    const QChar letter = letterOf(title.text());
    ASSERT_FALSE(letter.isNull()) << title.text().toStdString();
    QTest::keyClick(window_.get(), static_cast<Qt::Key>(letter.unicode()), Qt::AltModifier);
    QApplication::processEvents();
    EXPECT_TRUE(title.menu()->isVisible()) << title.text().toStdString() << " with " << inFront << " in front";
    for (QWidget* popup = QApplication::activePopupWidget(); popup != nullptr; popup = QApplication::activePopupWidget()) popup->close();
    window_->menuBar()->setActiveAction(nullptr);
  }
  static void expectOneForEachLetter(const QMenu& menu) {
    QString letters;
    for (const QAction* action : menu.actions()) {
      const QChar letter = letterOf(action->text());
      if (!letter.isNull() && action->isVisible()) {
        EXPECT_FALSE(letters.contains(letter)) << menu.title().toStdString() << ": " << action->text().toStdString();
        letters += letter;
      }
      if (action->menu() != nullptr) expectOneForEachLetter(*action->menu());
    }
  }
};

// Alt and a letter press one button, or go to one field, with each panel in front, while there is work and beside a long message.
TEST_F(MenusTest, NoTwoButtonsInSightHaveTheSameLetter) {
  open(sample("gpt_small.pt2"));
  window_->showNote(QStringLiteral("microbatch ").repeated(200));
  auto* const message = window_->findChild<MessageBar*>(QStringLiteral("message"));
  message->offer(QStringLiteral("&Other clusters"), {new QAction(QStringLiteral("h100-nvlink"), message)});
  for (auto* button : window_->statusBar()->findChildren<QPushButton*>()) button->show();
  for (const Panel panel : valuesOf<Panel>()) {
    if (panel == Panel::Start) continue;
    window_->showPanel(panel);
    ASSERT_TRUE(settle());
    QString letters;
    const auto add = [&](const QString& text) {
      const QChar letter = letterOf(text);
      if (letter.isNull()) return;
      EXPECT_FALSE(letters.contains(letter)) << std::string(nameOf(panel)) << ": " << text.toStdString();
      letters += letter;
    };
    for (const QAction* title : window_->menuBar()->actions()) add(title->text());
    for (const auto* button : window_->findChildren<QAbstractButton*>()) {
      if (button->isVisible() && !button->visibleRegion().isEmpty()) add(button->text());
    }
    for (const auto* label : window_->findChildren<QLabel*>()) {
      if (label->isVisible() && !label->visibleRegion().isEmpty() && label->buddy() != nullptr) add(label->text());
    }
    EXPECT_GE(letters.size(), 12) << std::string(nameOf(panel));
    for (const char* always : {"C", "D", "O", "X"}) EXPECT_TRUE(letters.contains(QLatin1String(always))) << always;
  }
}

TEST_F(MenusTest, OpenByTheirLettersWithAModelOpen) {
  open(sample("gpt_small.pt2"));
  expectLettersOpenMenus();
}

TEST_F(MenusTest, OpenByTheirLettersWithATraceOpen) {
  open(kPrimus);
  expectLettersOpenMenus();
}

TEST_F(MenusTest, EditByHandIsInTheEditMenuAndTheToolBar) {
  open(sample("gpt_small.pt2"));
  QAction* hand = window_->timeline().handAction();
  ASSERT_NE(hand, nullptr);
  const auto menus = window_->menuBar()->actions();
  EXPECT_TRUE(std::ranges::any_of(menus, [&](const QAction* title) { return title->menu()->actions().contains(hand); }));
  EXPECT_TRUE(window_->findChild<QToolBar*>(QStringLiteral("toolbar"))->actions().contains(hand));
  hand->trigger();
  EXPECT_TRUE(window_->timeline().hand().isOn());
  EXPECT_TRUE(hand->isChecked());
  hand->trigger();
  EXPECT_FALSE(window_->timeline().hand().isOn());
}

TEST_F(MenusTest, AKeyOfAnEditThatIsNotPossibleSaysWhy) {
  TimelineWidget& timeline = window_->timeline();
  open(kPrimus);
  QTest::keyClick(&timeline, Qt::Key_E);
  EXPECT_FALSE(timeline.hand().isOn());
  EXPECT_EQ(window_->message().toStdString(), "Open a model or a schedule first; a measured step cannot be edited.");
  open(sample("gpt_small.pt2"));
  QTest::keyClick(&timeline, Qt::Key_S, Qt::ShiftModifier);
  EXPECT_EQ(window_->message().toStdString(), "“Split or merge B” edits the schedule by hand; press E to begin that.");
}

TEST_F(MenusTest, PinnedPlansAreInTheToolBarAndComparingShowsTheTable) {
  open(sample("gpt_small.pt2"));
  window_->resize(1400, 900);
  auto* bar = window_->findChild<QToolBar*>(QStringLiteral("toolbar"));
  const auto named = [](const QList<QAction*>& actions, const QString& text) {
    const auto found = std::ranges::find_if(actions, [&](const QAction* action) { return action->text() == text; });
    return found == actions.end() ? nullptr : *found;
  };
  const auto buttons = bar->findChildren<QToolButton*>();
  const auto pinned = std::ranges::find_if(buttons, [](const QToolButton* button) { return button->menu() != nullptr; });
  ASSERT_NE(pinned, buttons.end());
  EXPECT_FALSE((*pinned)->isVisible()) << "there are none";
  named(bar->actions(), QStringLiteral("Pin"))->trigger();
  EXPECT_TRUE(QTest::qWaitFor([&] { return (*pinned)->isVisible(); }, 10'000));
  EXPECT_TRUE(window_->statusBar()->currentMessage().startsWith(QStringLiteral("Pinned as A")));
  QDockWidget* runs = window_->findChild<QDockWidget*>(QStringLiteral("runs"));
  EXPECT_TRUE(runs->visibleRegion().isEmpty()) << "behind Candidates";
  QAction* compare = (*pinned)->menu()->actions().front()->menu()->actions().front();
  compare->trigger();
  QApplication::processEvents();
  EXPECT_FALSE(runs->visibleRegion().isEmpty());
}

TEST_F(MenusTest, HaveOneEntryForEachLetter) {
  open(kPrimus);
  for (const QAction* title : window_->menuBar()->actions()) expectOneForEachLetter(*title->menu());
}

TEST_F(MenusTest, EveryKeyIsSaidInFullBesideASmallWindow) {
  for (const QSize size : {QSize(1024, 700), QSize(683, 467)}) {
    window_->resize(size);
    KeysDialog dialog(window_.get());
    dialog.show();
    ASSERT_TRUE(QTest::qWaitForWindowExposed(&dialog));
    const auto* keys = dialog.findChild<QTableWidget*>();
    ASSERT_NE(keys, nullptr);
    EXPECT_LE(dialog.width(), size.width());
    EXPECT_EQ(keys->horizontalScrollBar()->maximum(), 0) << size.width();
    for (int row = 0; row < keys->rowCount(); ++row) {
      EXPECT_GE(keys->rowHeight(row), static_cast<const QAbstractItemView*>(keys)->sizeHintForRow(row))
          << keys->item(row, 1)->text().toStdString();
    }
  }
}

TEST_F(MenusTest, EditByHandIsOfferedWhereThereIsAScheduleToEdit) {
  const QAction* byHand = window_->timeline().handAction();
  EXPECT_FALSE(byHand->isEnabled());
  EXPECT_TRUE(byHand->toolTip().startsWith("Open a model or a schedule first")) << byHand->toolTip().toStdString();
  open(kReplicas);
  EXPECT_FALSE(byHand->isEnabled()) << "of a measured step alone";
  open(sample("gpt_small.pt2"));
  EXPECT_TRUE(byHand->isEnabled());
  EXPECT_EQ(byHand->toolTip(), "Change the order of actions on the timeline (E)");
}

}  // namespace
}  // namespace pw::gui
