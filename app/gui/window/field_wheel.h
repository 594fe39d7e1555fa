#pragma once

#include <QObject>

class QMainWindow;

namespace pw::gui {

/// Lets the wheel scroll a panel past its fields: Qt gives it to the box at the mouse, so that a plan would change under a user who
/// scrolls. A box that has the focus still takes it.
class FieldWheel : public QObject {
  Q_OBJECT
 public:
  explicit FieldWheel(QMainWindow& window);

 protected:
  bool eventFilter(QObject* object, QEvent* event) override;

 private:
  QMainWindow& window_;
};

}  // namespace pw::gui
