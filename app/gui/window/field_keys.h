#pragma once

#include <QObject>

class QMainWindow;

namespace pw::gui {

/// Lets the window's shortcuts work while a text field has the focus: Qt gives a field every key that it could use itself, such as Ctrl+E
/// and Ctrl+K on X11. A field keeps those for copying and pasting, and undo and redo of what was typed and not taken yet.
class FieldKeys : public QObject {
  Q_OBJECT
 public:
  explicit FieldKeys(QMainWindow& window);

 protected:
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  QMainWindow& window_;
};

}  // namespace pw::gui
