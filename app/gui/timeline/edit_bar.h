#pragma once

#include <QWidget>

class QAction;
class QLabel;

namespace pw::gui {

/// What can be done while a schedule is edited by hand, as buttons that go on in a second line where there is no room, and what the last
/// edit changed, or why it was refused.
class EditBar : public QWidget {
 public:
  explicit EditBar(const QList<QAction*>& actions, QWidget* parent = nullptr);
  void setMessage(const QString& text, bool isRefusal);

 protected:
  void changeEvent(QEvent* event) override;

 private:
  void reserveLines();

  QLabel* message_ = nullptr;
};

}  // namespace pw::gui
