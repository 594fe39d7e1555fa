#pragma once

#include <QKeySequence>
#include <QList>
#include <QString>
#include <functional>
#include <utility>
#include <vector>

class QAction;
class QKeyEvent;
class QPoint;
class QWidget;

namespace pw::gui {

/// What a widget can do, by name: with keys that menus show and that the widget itself looks up (`commandOf`), so that fields within it
/// keep their own; switches that show a state; groups of a context menu. The widget's `actions()` are these, and they live as long as it
/// does.
class CommandList {
  Q_DISABLE_COPY_MOVE(CommandList)
 public:
  explicit CommandList(QWidget& owner) : owner_(owner) {}

  void beginGroup(const QString& name = {});                       ///< before the first one
  [[nodiscard]] QList<QAction*> group(const QString& name) const;  ///< for a menu of a window
  QAction* add(const QString& text, const QList<QKeySequence>& keys, const std::function<void()>& act);
  /// A switch: `act` is told the state that is wanted.
  QAction* addToggle(const QString& text, const QKeySequence& key, const std::function<bool()>& isOn, const std::function<void(bool)>& act);
  void updateToggles();  ///< to the states that they have by now
  /// By the key, and by the sign it writes: on some keyboards `]` or `/` need Shift or AltGr. Null: none has it.
  [[nodiscard]] QAction* commandOf(const QKeyEvent& event) const;
  void openMenu(const QPoint& global);

 private:
  QWidget& owner_;
  std::vector<std::pair<QAction*, std::function<bool()>>> toggles_;
  struct Group {
    QString name;
    QList<QAction*> actions;
  };
  std::vector<Group> groups_;
};

}  // namespace pw::gui
