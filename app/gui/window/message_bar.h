#pragma once

#include <QFrame>
#include <QStyle>

class QAction;
class QLabel;
class QPushButton;
class QVBoxLayout;

namespace pw::gui {

/// A message above the content, with an icon for its kind, until it is dismissed or the next comes: as many lines
/// as its buttons are high, and all of it in a dialog, which a button opens. Hidden at first.
class MessageBar : public QFrame {
  Q_OBJECT
 public:
  static constexpr int kLines = 3;

  explicit MessageBar(QWidget* parent = nullptr);
  /// A full stop is added where the sentence has no end; empty: nothing happens.
  void show(const QString& sentence, QStyle::StandardPixmap icon);
  /// Offers something instead of what the message says: a button that opens a menu of these, until the next message. The bar goes when one
  /// is chosen.
  void offer(const QString& text, const QList<QAction*>& choices);
  [[nodiscard]] QString text() const { return all_; }  ///< all of it

 protected:
  void resizeEvent(QResizeEvent* event) override;
  void changeEvent(QEvent* event) override;

 private:
  void fit();
  void showAll();

  QLabel *icon_, *text_;
  QPushButton* offer_;
  QPushButton* more_;  ///< where not all of the message has room
  QVBoxLayout* buttons_;
  QString all_;
  QStyle::StandardPixmap kind_ = QStyle::SP_MessageBoxInformation;
};

}  // namespace pw::gui
