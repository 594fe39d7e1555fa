#pragma once

#include <QWidget>

class QLabel;
class QLineEdit;

namespace pw::gui {

/// A search field, the number of matches, and buttons for the next and the previous one. Enter is next, Shift+Enter previous, Escape
/// closes.
class FindBar : public QWidget {
  Q_OBJECT
 public:
  explicit FindBar(QWidget* parent = nullptr);

  void open();  ///< shows the bar, with the text selected
  void setText(const QString& text);
  [[nodiscard]] QString text() const;
  /// `3 of 17`, or why nothing was found.
  void setCount(const QString& text, bool good);

 signals:
  void searched(const QString& text);  ///< the text changed
  void stepped(int direction);
  void closed();

 protected:
  bool eventFilter(QObject* watched, QEvent* event) override;

 private:
  QLineEdit* edit_;
  QLabel* count_;
};

}  // namespace pw::gui
