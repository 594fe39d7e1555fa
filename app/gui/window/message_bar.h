#pragma once

#include <QFrame>
#include <QStyle>

class QLabel;

namespace pw::gui {

/// One sentence above the content, with an icon for its kind, until it is dismissed or the next comes. Hidden at first.
class MessageBar : public QFrame {
  Q_OBJECT
 public:
  explicit MessageBar(QWidget* parent = nullptr);
  /// A full stop is added where the sentence has no end; empty: nothing happens.
  void show(const QString& sentence, QStyle::StandardPixmap icon);
  [[nodiscard]] QString text() const;

 private:
  QLabel *icon_, *text_;
};

}  // namespace pw::gui
