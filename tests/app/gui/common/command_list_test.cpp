#include "app/gui/common/command_list.h"

#include <gtest/gtest.h>

#include <QAction>
#include <QKeyEvent>
#include <QWidget>

namespace pw::gui {
namespace {

class Commands : public testing::Test {
 protected:
  Commands() { commands.beginGroup(); }
  [[nodiscard]] QAction* of(int key, Qt::KeyboardModifiers modifiers = Qt::NoModifier, const QString& text = {}) const {
    return commands.commandOf(QKeyEvent(QEvent::KeyPress, key, modifiers, text));
  }

  QWidget widget;
  CommandList commands{widget};
};

TEST_F(Commands, AreFoundByAnyOfTheirKeys) {
  int done = 0;
  QAction* zoom = commands.add(QStringLiteral("Zoom in"), {QKeySequence(Qt::Key_W), QKeySequence(Qt::Key_Plus)}, [&] { ++done; });
  QAction* move = commands.add(QStringLiteral("Move"), {QKeySequence(Qt::ALT | Qt::Key_Up)}, [] {});
  EXPECT_EQ(of(Qt::Key_W), zoom);
  EXPECT_EQ(of(Qt::Key_Plus), zoom);
  EXPECT_EQ(of(Qt::Key_Plus, Qt::KeypadModifier), zoom) << "the keypad's too";
  EXPECT_EQ(of(Qt::Key_Up, Qt::AltModifier), move);
  EXPECT_EQ(of(Qt::Key_Up), nullptr);
  EXPECT_EQ(of(Qt::Key_W, Qt::ControlModifier), nullptr);
  EXPECT_EQ(widget.actions(), (QList<QAction*>{zoom, move}));
  zoom->trigger();
  EXPECT_EQ(done, 1);
}

TEST_F(Commands, AreFoundByTheSignThatAKeyWrites) {
  QAction* cause = commands.add(QStringLiteral("Go to cause"), {QKeySequence(Qt::Key_BracketLeft)}, [] {});
  QAction* find = commands.add(QStringLiteral("Find"), {QKeySequence(Qt::Key_Slash)}, [] {});
  EXPECT_EQ(of(Qt::Key_8, Qt::GroupSwitchModifier, QStringLiteral("[")), cause) << "AltGr and 8";
  EXPECT_EQ(of(Qt::Key_7, Qt::ShiftModifier, QStringLiteral("/")), find) << "Shift and 7";
  EXPECT_EQ(of(Qt::Key_7, Qt::ShiftModifier, QStringLiteral("&")), nullptr);
}

TEST_F(Commands, SwitchesShowTheStateThatTheyTurn) {
  bool isOn = false;
  QAction* path = commands.addToggle(
      QStringLiteral("Critical path"), QKeySequence(Qt::Key_X), [&] { return isOn; }, [&](bool on) { isOn = on; });
  path->trigger();
  EXPECT_TRUE(isOn);
  EXPECT_TRUE(path->isChecked());
  isOn = false;  // by something else
  EXPECT_TRUE(path->isChecked());
  commands.updateToggles();
  EXPECT_FALSE(path->isChecked());
  path->trigger();
  EXPECT_TRUE(isOn) << "from the state that it has, not the one that is shown";
}

}  // namespace
}  // namespace pw::gui
