#pragma once

#include <QLabel>

namespace pw::gui {

/// One line that ends in `…` where there is no room for all of it, which its tip then has.
class ElidedLabel : public QLabel {
  Q_OBJECT
 public:
  using QLabel::QLabel;
  [[nodiscard]] QSize minimumSizeHint() const override;

 protected:
  bool event(QEvent* event) override;
  void paintEvent(QPaintEvent* event) override;
};

}  // namespace pw::gui
